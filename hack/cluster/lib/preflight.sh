# shellcheck shell=bash
# Says in one sentence why a cluster can not run here, before anything is changed.

ALTERNATIVE="Use your own cluster instead: see 'Install on your own cluster' in README.md."

# in_unshared COMMAND: can we do this in fresh namespaces of our own? Leaves nothing behind.
in_unshared() { unshare --net --mount --propagation private sh -c "$1" >/dev/null 2>&1; }

preflight_machine() {
  [ "$(uname -s)" = Linux ] ||
    die "the test cluster runs on Linux only (this is $(uname -s)). $ALTERNATIVE"
  case $(uname -m) in
    x86_64 | aarch64) ;;
    *) die "the test cluster runs on x86_64 and aarch64 only (this is $(uname -m)). $ALTERNATIVE" ;;
  esac
  [ "$(id -u)" = 0 ] ||
    die "the test cluster needs root (network namespaces, mounts, cgroups); this is $(id -un). Run it with sudo. $ALTERNATIVE"
  in_unshared true ||
    die "this root may not create network and mount namespaces (CAP_SYS_ADMIN is missing, as in an unprivileged container). $ALTERNATIVE"
  in_unshared 'mount -t tmpfs tmpfs /tmp' ||
    die "this root may not mount file systems (CAP_SYS_ADMIN is missing, or a security policy forbids it). $ALTERNATIVE"
  if command -v ip >/dev/null; then
    in_unshared 'ip link set lo up && ip link add v0 type veth peer name v1 && ip link add b0 type bridge' ||
      die "this kernel or policy does not allow virtual network links (veth and bridge). $ALTERNATIVE"
  fi
  preflight_cgroups
  [ "${#DIR}" -le 70 ] ||
    die "MODELROLLOUT_CLUSTER_DIR is longer than 70 characters, and the path of a socket below it would be too long for the kernel."
  [[ "$DIR" == /?* && "$DIR" != *[[:space:]]* && "$DIR" != *//* && "$DIR" != */ ]] ||
    die "MODELROLLOUT_CLUSTER_DIR must be an absolute path without blanks and without a slash at its end (it is '$DIR')."
  if [ -d "$DIR" ] && [ ! -e "$DIR/.modelrollout-cluster" ] && [ -n "$(ls -A "$DIR")" ]; then
    die "$DIR holds files that are not a test cluster's; set MODELROLLOUT_CLUSTER_DIR to a folder of its own."
  fi
}

# cgroup_roots: the folder of each cgroup hierarchy (one with v2, one per controller with v1).
cgroup_roots() {
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    echo /sys/fs/cgroup
  else
    awk '$3 == "cgroup" || $3 == "cgroup2" {print $2}' /proc/self/mounts | grep '^/sys/fs/cgroup/' | sort -u
  fi
}

preflight_cgroups() {
  local root
  [ -n "$(cgroup_roots)" ] || die "no cgroups are mounted at /sys/fs/cgroup. $ALTERNATIVE"
  for root in $(cgroup_roots); do
    { mkdir "$root/$CGROUP-preflight" && rmdir "$root/$CGROUP-preflight"; } 2>/dev/null ||
      die "cgroups can not be created in $root (read-only or not delegated, as in an unprivileged container). $ALTERNATIVE"
  done
}

# other_cluster: the folder of a running cluster that is not the one meant here.
other_cluster() {
  local dir
  dir=$(cat "$OWNER" 2>/dev/null) || return 1
  [ -n "$dir" ] && [ "$dir" != "$DIR" ] || return 1
  (
    DIR=$dir
    RUN=$dir/run
    export RUN
    for program in $PROGRAMS; do alive "$program" && exit 0; done
    exit 1
  ) || return 1
  printf '%s' "$dir"
}

preflight_other_cluster() {
  local dir
  if dir=$(other_cluster); then
    die "a test cluster in $dir is running on this machine, and there can be only one. Take it down first: MODELROLLOUT_CLUSTER_DIR=$dir hack/cluster/down"
  fi
}

# From /proc, because ss may not be installed yet. State 0A is LISTEN.
port_inodes() {
  awk -v port=":$(printf '%04X' "$1")$" '$4 == "0A" && $2 ~ port {print $10}' /proc/net/tcp /proc/net/tcp6 2>/dev/null
}
port_listens() { [ -n "$(port_inodes "$1")" ]; }
port_user() {
  local inode pid
  for inode in $(port_inodes "$1"); do
    pid=$(find /proc/[0-9]*/fd -lname "socket:\[$inode\]" 2>/dev/null | head -n 1 | cut -d/ -f3)
    [ -z "$pid" ] || printf '%s (pid %s)' "$(cat "/proc/$pid/comm" 2>/dev/null)" "$pid"
  done | grep . || printf 'its name can not be seen from here'
}

# preflight_ports: for a start from nothing (our own programs are stopped by then).
preflight_ports() {
  local port
  for port in 2379 2380 6443 10257 10259; do
    # A killed program of ours may hold it for a moment more.
    for _ in {1..20}; do
      port_listens "$port" || break
      sleep 0.1
    done
    ! port_listens "$port" ||
      die "port $port is needed by the test cluster and is in use by another program: $(port_user "$port"). Stop that program, then run this again."
  done
}

# preflight_addresses: the three networks must not be in use by something else.
preflight_addresses() {
  local net route
  command -v ip >/dev/null || return 0
  for net in "$POD_CIDR" "$SERVICE_CIDR" "$HOST_IP/30"; do
    route=$(ip -4 route show root "${net/$HOST_IP/10.99.0.0}" | grep -v " $VETH_HOST" | head -n 1 || true)
    [ -z "$route" ] || die "the test cluster uses the addresses $net, and this machine already has a route for them ($route). $ALTERNATIVE"
  done
}
