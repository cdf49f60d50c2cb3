#!/bin/bash
# run.sh DIR COMMAND…: runs a command as root in a virtual machine that has systemd, cgroup v2 and the kernel
# of Debian, where this machine lacks them, such as make cluster-test. The machine sees the files of this
# one, but what it writes goes to its memory, and below the directories SCRATCH (separated by colons) to a
# disk of its own. DIR keeps the kernel. It needs Debian as root, the packages qemu-system-x86, kmod and
# busybox-static, and /dev/kvm. VM_MEMORY and VM_CPUS are its size. The exit status is that of the command.
set -euo pipefail
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
if [ ! -d "$dir/kernel/boot" ]; then
  mkdir -p "$dir/kernel"
  package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
  (cd "$dir" && apt-get download "$package" && dpkg-deb -x "$package"_*.deb kernel && rm "$package"_*.deb)
  depmod -b "$dir/kernel" "$(ls "$dir/kernel/lib/modules")"
fi
version=$(ls "$dir/kernel/lib/modules")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The first file system: mounts the root and starts systemd in it.
mkdir -p "$work/init"/{bin,modules,proc,sys,dev,lower,upper,root}
cp "$(command -v busybox)" "$work/init/bin/busybox"
for module in virtio_pci virtio_blk 9pnet_virtio 9p overlay ext4 crc32c_generic; do
  modprobe -d "$dir/kernel" -S "$version" --show-depends "$module" | awk '$1 == "insmod" { print $2 }'
done | awk '!seen[$0]++' | while read -r file; do
  cp "$file" "$work/init/modules/"
  echo "insmod /modules/$(basename "$file")"
done >"$work/modules"
cat >"$work/init/init" <<I
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t devtmpfs dev /dev
$(cat "$work/modules")
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro host /lower
mount -t tmpfs -o size=75% tmpfs /upper && mkdir /upper/data /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work overlay /root
mkdir -p /root/lib/modules
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro modules /root/lib/modules
mkdir -p /root/run && mount -t tmpfs -o mode=755 tmpfs /root/run && mkdir /root/run/scratch
mount -t ext4 /dev/vda /root/run/scratch
n=0
for d in $(echo "${SCRATCH-}" | tr : ' '); do
  n=\$((n + 1)) && mkdir -p "/root\$d" "/root/run/scratch/\$n" && mount -o bind "/root/run/scratch/\$n" "/root\$d"
done
cat >/root/run/command <<'C'
$(printf 'cd %q\nexport PATH=%q HOME=%q\n%s %s\n' "$PWD" "$PATH" "$HOME" "$(env | grep -E '^[A-Z_]*TEST_[A-Z_]*=' | sed "s/'/'\\\\''/g; s/=\(.*\)/='\1'/; s/^/export /" | tr '\n' ';')" "$(printf '%q ' "$@")")
C
mkdir -p /root/run/systemd/system
cat >/root/run/systemd/system/vm.service <<'U'
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'bash /run/command >/dev/ttyS0 2>&1; echo "vm: exit status \$?" >/dev/ttyS0'
ExecStopPost=/bin/systemctl --force --force poweroff
TimeoutStartSec=infinity
Delegate=yes
U
umount /proc /sys
exec switch_root /root /lib/systemd/systemd --show-status=no --unit=vm.service
I
chmod +x "$work/init/init"
(cd "$work/init" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"
truncate -s 20G "$work/disk"
mkfs.ext4 -q "$work/disk"

qemu-system-x86_64 -accel "${VM_ACCEL:-kvm}" -cpu "${VM_CPU:-host}" -smp "${VM_CPUS:-2}" -m "${VM_MEMORY:-8G}" -nographic -no-reboot -nic none \
  -kernel "$dir/kernel/boot/vmlinuz-$version" -initrd "$work/initrd" \
  -append "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off" \
  -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
  -virtfs "local,path=$dir/kernel/lib/modules,mount_tag=modules,security_model=none,readonly=on" </dev/null |
  sed -u 's,\r,,g' | tee "$work/output"
exit "$(sed -n 's/^vm: exit status //p' "$work/output" | tail -n 1)"
