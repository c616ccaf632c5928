# Sets up the mount namespace of a user without privileges, and runs a command there as the user nobody. The arguments are
# the state of tracefs, the folders that the command needs, `--`, the folders above them that nobody cannot enter, `--`, the
# working folder, and the command. The script mounts an empty file system over each folder that nobody cannot enter. Then it
# mounts the needed folders in there again.
set -e
if [ "$1" = not-mounted ]; then
    for place in /sys/kernel/debug/tracing /sys/kernel/tracing; do
        while umount -l "$place" 2>/dev/null; do :; done
    done
fi
shift
mount -t tmpfs -o mode=755 none /mnt
count=0 folders=
while [ "$1" != -- ]; do
    mkdir "/mnt/$count"; mount --bind "$1" "/mnt/$count"
    folders="$folders $count:$1" count=$((count + 1)); shift
done
shift
while [ "$1" != -- ]; do mount -t tmpfs -o mode=755 none "$1"; shift; done
shift
for folder in $folders; do
    mkdir -p "${folder#*:}"; mount --bind "/mnt/${folder%%:*}" "${folder#*:}"
done
cd "$1"; shift
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
