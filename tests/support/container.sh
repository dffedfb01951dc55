# shellcheck shell=bash disable=SC2034,SC2154
# SPDX-License-Identifier: BSD-3-Clause
#
# A container without an engine: a minimal Debian that has what the package
# depends on, under an overlay, in namespaces of its own (mounts, processes,
# IPC, host name, network with loopback only), with a /dev of five files. The
# directory $work is the script's, $build what is packed.

# container_why: why there can be none, or nothing
# shellcheck disable=SC2016 # the namespaces' shell expands
container_why() {
	if [ "$(id -u)" != 0 ]; then
		echo "needs root"
	elif ! unshare -mpiunf sh -ec 'mkdir -p "$1/try/a" "$1/try/b" \
		"$1/try/c" && mount -t tmpfs none "$1/try/b" && mkdir \
		"$1/try/b/u" "$1/try/b/w" && mount -t overlay overlay -o \
		"lowerdir=$1/try/a,upperdir=$1/try/b/u,workdir=$1/try/b/w" \
		"$1/try/c"' sh "$work" 2>/dev/null; then
		echo "no namespaces or no overlay"
	fi
}

# container_make: packs $build, and makes the root; $deb, $depends, $layers
container_make() {
	if ! cpack -G DEB --config "$build/CPackConfig.cmake" \
		-B "$work/package" >"$work/out" 2>&1; then
		cat "$work/out"
		return 1
	fi
	deb=$(echo "$work"/package/*.deb)
	depends=$(dpkg-deb -f "$deb" Depends |
		sed 's/([^)]*)//g; s/|[^,]*//g; s/,/ /g' | tr -s ' ')
	layers=$work/layers
	mkdir -p "$layers/upper" "$layers/work" "$layers/root"
	# shellcheck disable=SC2086 # names
	"$root/tests/support/debian-root" "$build/debian-root" $depends \
		>"$work/debian.log" 2>&1 || { tail -20 "$work/debian.log"; return 1; }
}

# container SHM MODE COMMAND...: as root in it, with a /dev/shm of that size
# (none: without), the root "rw" or "ro"; output in ${out:-$work/out}, and
# $status. The network is that of the namespace $net, if set, or with "host" the
# caller's. With $device it has /dev/infiniband.
container() {
	local enter=(unshare -mpiu)

	case ${net:-} in
	'') enter+=(-n) ;;
	host) ;;
	*) enter=(ip netns exec "$net" "${enter[@]}") ;;
	esac
	# shellcheck disable=SC2016 # the namespaces' shell expands
	timeout -s KILL 60 "${enter[@]}" -f --kill-child sh -ec '
		lower=$1 layers=$2 device=$3 shm=$4 mode=$5
		shift 5
		mount -t overlay overlay -o \
			"lowerdir=$lower,upperdir=$layers/upper,workdir=$layers/work" \
			"$layers/root"
		cd "$layers/root"
		mount -t proc proc proc
		mount -t sysfs -o ro sysfs sys
		mount -t tmpfs none run
		: >run/.containerenv
		mount -t tmpfs none dev
		for node in null zero full random urandom; do
			: >"dev/$node"
			mount --bind "/dev/$node" "dev/$node"
		done
		[ "$shm" = none ] || {
			mkdir -m 1777 dev/shm
			mount -t tmpfs -o "size=$shm" none dev/shm
		}
		[ -z "$device" ] || {
			mkdir dev/infiniband
			mount --bind /dev/infiniband dev/infiniband
		}
		ip link set lo up
		[ "$mode" = rw ] || mount -o remount,ro "$layers/root"
		exec chroot . env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
		' sh "${lower:-$build/debian-root}" "$layers" "${device:-}" "$@" \
		>"${out:-$work/out}" 2>&1 </dev/null
	status=$?
}

# container_install: the package, and a user as the Containerfile makes it
container_install() {
	mkdir -p "$layers/upper/tmp"
	cp "$deb" "$layers/upper/tmp/verbena.deb"
	container 64m rw sh -c 'dpkg -i /tmp/verbena.deb &&
		rm /tmp/verbena.deb && useradd --create-home --uid 1000 verbena'
	return "$status"
}

# What Docker leaves to root, and what is left to a user.
docker=-all
for name in chown dac_override fowner fsetid kill setgid setuid setpcap \
	net_bind_service net_raw sys_chroot mknod audit_write setfcap; do
	docker+=,+$name
done
as_root="setpriv --bounding-set=$docker --inh-caps=-all"
as_user="$as_root --reuid=1000 --regid=1000 --clear-groups"

# limited KIB SHM MODE WHO COMMAND...: with so much locked memory, as $as_root
# or $as_user
limited() {
	local memlock=$1 shm=$2 mode=$3 who=$4
	shift 4
	# shellcheck disable=SC2016,SC2086 # the shell inside; words
	container "$shm" "$mode" sh -c 'ulimit -l "$0" && exec "$@"' \
		"$memlock" $who "$@"
}

has() { # PATTERN: in the output
	grep -qE -- "$1" "$work/out"
}

json() { # JQ-FILTER
	[ -s "$work/out" ] && jq -e "$1" "$work/out" >/dev/null
}
