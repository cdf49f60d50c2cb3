#!/bin/bash
# machine.sh DIR: becomes the first process of a small machine, systemd, in new namespaces: with the
# programs of DIR/bin in /usr/bin, the units of DIR/units alone, and a /etc, /opt, /run and /var/lib of
# its own. unshare has made the namespaces of mount, network, process IDs, host name and IPC.
set -euo pipefail
dir=$1
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
mkdir -p "$dir"/{etc,work}
mount -t overlay -o "lowerdir=/etc,upperdir=$dir/etc,workdir=$dir/work" overlay /etc
mount -t overlay -o "lowerdir=$dir/bin:/usr/bin" overlay /usr/bin
for d in /opt /run /var/lib; do mount -t tmpfs -o mode=755 tmpfs "$d"; done
mkdir -p /opt/cni/bin /var/lib/cni /etc/cni/net.d
cp "$dir"/plugins/* /opt/cni/bin
cp "$dir"/net.d/* /etc/cni/net.d
cp -r "$dir/options" /etc/delegated-ipam
ip link set lo up
export container=test SYSTEMD_UNIT_PATH=$dir/units
exec /lib/systemd/systemd --system --unit=basic.target --log-target=console --show-status=no
