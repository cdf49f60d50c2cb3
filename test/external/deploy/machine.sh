#!/bin/bash
# machine.sh DIR PROGRAM PLUGIN UNIT: becomes the first process of a small machine, systemd, in new
# namespaces: with the program in /usr/bin, the unit alone, and, in the empty DIR, a /etc, /opt, /run and
# /var/lib of its own. The caller has made the namespaces of mount, network, process IDs, host name and IPC.
set -euo pipefail
dir=$1 program=$2 plugin=$3 unit=$4
if [ -z "${MACHINE_BOOTING-}" ]; then
  mount --make-rprivate /
  # Its cgroup becomes the root of a new cgroup namespace. systemd needs one hierarchy.
  for h in $(findmnt -n -o TARGET -t cgroup2; findmnt -n -o TARGET -t cgroup -O name=systemd); do
    mkdir -p "$h/$MACHINE_CGROUP"
    echo 0 >"$h/$MACHINE_CGROUP/cgroup.procs"
  done
  MACHINE_BOOTING=yes exec unshare --cgroup bash "$0" "$@"
fi
legacy=$(findmnt -n -o TARGET -t cgroup -O name=systemd || true)
umount -R /sys
mount -t sysfs sysfs /sys
if [ -n "$legacy" ]; then
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  mkdir /sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
else
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
mount -t proc proc /proc
mkdir -p "$dir"/{etc,work,bin,units}
cp "$program" "$dir/bin/delegated-ipam"
cp "$unit" "$dir/units/delegated-ipam.service"
mount -t overlay -o "lowerdir=/etc,upperdir=$dir/etc,workdir=$dir/work" overlay /etc
mount -t overlay -o "lowerdir=$dir/bin:/usr/bin" overlay /usr/bin
for d in /opt /run /var/lib; do mount -t tmpfs -o mode=755 tmpfs "$d"; done
mkdir -p /opt/cni/bin /var/lib/cni /etc/cni/net.d /etc/delegated-ipam
cp "$plugin" /opt/cni/bin
echo '{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "cilium-cni",
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.15.0.0/24"}]]}}]}' >/etc/cni/net.d/05-cilium.conflist
echo false >/etc/delegated-ipam/enable-ipv6
echo machine >/etc/delegated-ipam/node-name
# What every unit depends on, without the units of the host.
for target in sysinit basic local-fs shutdown multi-user umount; do
  printf '[Unit]\nDefaultDependencies=no\n' >"$dir/units/$target.target"
done
ip link set lo up
export container=test SYSTEMD_UNIT_PATH=$dir/units
exec /lib/systemd/systemd --system --unit=basic.target --log-target=console --show-status=no
