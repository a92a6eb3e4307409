# usage: enter.sh ROOT BIN LOGS PROGRAM..., in a mount namespace of its own
#
# Runs a program in the system below ROOT, with BIN as /srv and LOGS as /mnt there. Files that tests
# make in /tmp have the same names there.
set -eu
root=$1 bin=$2 logs=$3
shift 3
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount --bind "$bin" "$root/srv"
mount --bind "$logs" "$root/mnt"
mount --bind /tmp "$root/tmp"
exec chroot "$root" "$@"
