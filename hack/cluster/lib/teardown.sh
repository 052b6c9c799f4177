# shellcheck shell=bash
# Takes everything down, in an order that leaves nothing behind, whatever of it is
# still there: a running cluster, half of one, or what stays when all its processes
# were killed at once (namespace, mounts, cgroups, stale pid files).

# stop_pods: while containerd lives (its shims outlive it otherwise).
stop_pods() {
  local ids
  { alive containerd && timeout 10 ctr -a "$SOCK" version >/dev/null 2>&1; } || return 0
  ids=$(timeout 10 ctr -a "$SOCK" -n k8s.io tasks ls -q 2>/dev/null || true)
  # Eight at a time. The single quotes are meant: $0 and $1 are the inner shell's.
  # shellcheck disable=SC2016
  xargs -r -n 1 -P 8 sh -c 'timeout 20 ctr -a "$0" -n k8s.io tasks kill -a -s KILL "$1"; timeout 20 ctr -a "$0" -n k8s.io tasks delete -f "$1"' "$SOCK" <<<"$ids" >/dev/null 2>&1 || true
  ids=$(timeout 10 ctr -a "$SOCK" -n k8s.io containers ls -q 2>/dev/null || true)
  [ -z "$ids" ] || xargs timeout 60 ctr -a "$SOCK" -n k8s.io containers rm <<<"$ids" >/dev/null 2>&1 || true
}

# kill_leftovers: shims (known by our socket in their arguments) and whatever still
# runs in our Pods' cgroups.
kill_leftovers() {
  local pid root tries
  for pid in $(pgrep -f 'containerd-shim-runc-v2' || true); do
    ! is_ours_shim "$pid" || kill -KILL "$pid" 2>/dev/null || true
  done
  for tries in 1 2 3 4 5; do
    local found=
    for root in $(cgroup_roots); do
      [ -d "$root/$CGROUP" ] || continue
      for pid in $(find "$root/$CGROUP" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u); do
        found=yes
        kill -KILL "$pid" 2>/dev/null || true
      done
    done
    [ -n "$found" ] || break
    sleep 0.$tries
  done
}

is_ours_shim() {
  local -a args=()
  mapfile -d '' -t args 2>/dev/null <"/proc/$1/cmdline" || return 1
  [[ "${args[0]:-}" == *containerd-shim-runc-v2 && " ${args[*]} " == *" $SOCK "* ]]
}

# unmount_all: every mount below the cluster's folder, deepest first.
unmount_all() {
  local mount
  # Octal escapes (\040) can not occur: the folder has no blanks, and below it are our own names.
  awk -v dir="$DIR/" 'index($2, dir) == 1 {print $2}' /proc/self/mounts | sort -r | while read -r mount; do
    umount -l "$mount" 2>/dev/null || true
  done
}

remove_cgroups() {
  local root
  for root in $(cgroup_roots); do
    [ ! -d "$root/$CGROUP" ] || find "$root/$CGROUP" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
}

teardown() {
  local name
  for name in kubelet kube-proxy kube-scheduler kube-controller-manager; do stop "$name"; done
  stop_pods
  stop containerd
  kill_leftovers
  # An API server with open watches takes its time; a new one before the old has gone
  # would fail with "address already in use".
  stop kube-apiserver 3
  stop etcd
  unmount_all
  network_down
  remove_cgroups
  machine_restore
  # Not across a mount: if one is still there, its contents stay.
  rm -rf --one-file-system "$DIR"
  rm -f "$OWNER"
}

# leftovers: what is still there after a teardown, for the last sentence of down.
leftovers() {
  local root name
  for name in $PROGRAMS; do ! alive "$name" || echo "process $name"; done
  [ ! -e "/run/netns/$NETNS" ] || echo "network namespace $NETNS"
  ! ip link show "$VETH_HOST" >/dev/null 2>&1 || echo "link $VETH_HOST"
  for root in $(cgroup_roots); do [ ! -d "$root/$CGROUP" ] || echo "cgroup $root/$CGROUP"; done
  [ ! -e "$DIR" ] || echo "folder $DIR"
}
