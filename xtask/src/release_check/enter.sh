# usage: enter.sh ROOT, as root in namespaces of its own
#
# Makes a folder with a Debian a system that programs run in, then installs and uses there what
# lies in its /srv. The only network is loopback: nothing is fetched.
set -eu
root=$1
ip link set lo up
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
	mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
done
mkdir -m 1777 "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
in_root() {
	chroot --userspec="$1" "$root" env -i HOME=/home/stranger LC_ALL=C.UTF-8 \
		PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -eu "$2"
}
in_root stranger:stranger /srv/before
cut -d ' ' -f 1 /proc/uptime > "$root/srv/begun"
case $(cat "$root/srv/installer") in
outside) cd "$root/srv" && root=$root sh -eu install ;;
*) in_root "$(cat "$root/srv/installer")" /srv/install ;;
esac
in_root stranger:stranger /srv/use
