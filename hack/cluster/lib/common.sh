# shellcheck shell=bash
# What every script of the test cluster shares: versions, folders, addresses,
# messages with times, waiting with a limit, and finding our own processes.

# ---- versions ---------------------------------------------------------------
# The Go programs' versions are those of tools/*/go.mod; these are stamped into
# binaries and image tags.
export KUBERNETES_VERSION=v1.34.4
export HELM_VERSION=v3.19.5
export COREDNS_VERSION=v1.12.4
export PROMETHEUS_VERSION=v0.316.0
export TRAEFIK_VERSION=3.7.15

# ---- folders ----------------------------------------------------------------
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${MODELROLLOUT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/modelrollout}
DIR=${MODELROLLOUT_CLUSTER_DIR:-/var/lib/modelrollout-cluster}
BIN=$CACHE/bin          # one folder of links to the newest build of each tool
RUN=$DIR/run            # pid files
LOGS=$DIR/logs
SOCK=$DIR/containerd.sock
ADMIN=$DIR/admin.kubeconfig
OWNER=/run/modelrollout-cluster.dir    # names the folder whose cluster uses the network below
LOCK=/run/modelrollout-cluster.lock
export HERE CACHE DIR BIN RUN LOGS SOCK ADMIN OWNER LOCK

# ---- network ----------------------------------------------------------------
# The control plane listens in the machine's own network namespace; the node
# has a namespace of its own, reached over one veth pair, with no route out.
export NETNS=modelrollout-node
export VETH_HOST=mr-host VETH_NODE=mr-node
export HOST_IP=10.99.0.1 NODE_IP=10.99.0.2
export POD_CIDR=10.88.0.0/16 SERVICE_CIDR=10.96.0.0/16
export API_SERVICE_IP=10.96.0.1 DNS_IP=10.96.0.10 PROMETHEUS_IP=10.96.0.90
export NODE_NAME=node1
export CGROUP=modelrollout     # every Pod's cgroup is below this one

# The programs started here talk to loopback and to the namespaces above only.
export NO_PROXY="${NO_PROXY:+$NO_PROXY,}127.0.0.1,localhost,10.88.0.0/16,10.96.0.0/16,10.99.0.0/30"
export no_proxy=$NO_PROXY
# What a Debian root shell has; a trimmed PATH (cron, sudo) often lacks sbin.
export PATH="$BIN:$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# ---- messages ---------------------------------------------------------------
say() { printf '==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

now_ms() { local t=${EPOCHREALTIME/[.,]/}; printf '%s' "${t%???}"; }

# since MS: seconds since then, with one digit.
since() {
  local ms=$(($(now_ms) - $1))
  printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}

# step NAME COMMAND...: run a command (a function) and say how long it took.
step() {
  local what=$1 start
  start=$(now_ms)
  shift
  "$@"
  say "$what: $(since "$start") s"
}

# show_log NAME: the end of a program's log, for the sentence that follows it.
show_log() {
  [ -s "$LOGS/$1.log" ] || return 0
  printf -- '--- the last lines of %s\n' "$LOGS/$1.log" >&2
  tail -n 25 "$LOGS/$1.log" | cut -c1-400 >&2
  printf -- '---\n' >&2
}

# wait_for SECONDS PROGRAM WHAT COMMAND...: poll until the command succeeds. Gives
# up when the time is over, or at once when the program (if any) has exited.
wait_for() {
  local limit=$1 program=$2 what=$3 deadline
  shift 3
  deadline=$(($(now_ms) + limit * 1000))
  until "$@" >/dev/null 2>&1; do
    if [ "$program" != - ] && ! alive "$program"; then
      show_log "$program"
      die "$program has exited while waiting for: $what. Its log is $LOGS/$program.log."
    fi
    if [ "$(now_ms)" -ge "$deadline" ]; then
      [ "$program" = - ] || show_log "$program"
      die "gave up after $limit s waiting for: $what. The logs are in $LOGS."
    fi
    sleep 0.1
  done
}

# ---- our processes ----------------------------------------------------------
# The programs in the order in which they are started.
export PROGRAMS="containerd etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy"

# running PID: is it there, and not just waiting to be reaped?
running() { grep -q '^State:[[:space:]]*[A-WYa-wy]' "/proc/$1/status" 2>/dev/null; }

# is_ours PID NAME: does this pid run NAME with our cluster's folder among its
# arguments? A pid file alone proves nothing: the number may have been given to
# another program since.
is_ours() {
  local pid=$1 name=$2
  local -a args=()
  [ -r "/proc/$pid/cmdline" ] || return 1
  mapfile -d '' -t args 2>/dev/null <"/proc/$pid/cmdline" || return 1
  [ "${#args[@]}" -gt 0 ] && [ "${args[0]##*/}" = "$name" ] && [[ "${args[*]}" == *"$DIR/"* ]]  && running "$pid"
}

# pid_of NAME: the pid of our program, from its pid file or, if that is lost, from /proc.
pid_of() {
  local name=$1 pid
  if pid=$(cat "$RUN/$name.pid" 2>/dev/null) && [ -n "$pid" ] && is_ours "$pid" "$name"; then
    printf '%s\n' "$pid"
    return 0
  fi
  for pid in $(pgrep -x "${name:0:15}" || true); do
    if is_ours "$pid" "$name"; then
      printf '%s\n' "$pid"
      return 0
    fi
  done
  return 1
}

alive() { pid_of "$1" >/dev/null; }

# start NAME COMMAND...: a program that outlives this script, with a plain environment.
start() {
  local name=$1
  shift
  alive "$name" && return 0
  mkdir -p "$RUN" "$LOGS"
  # The pipe-free chain of exec keeps the pid: setsid, env, nsenter and unshare do
  # not fork here. Descriptor 9 is the lock, which a daemon must not hold.
  env -i PATH="$PATH" HOME=/root setsid "$@" >>"$LOGS/$name.log" 2>&1 </dev/null 9>&- &
  local pid=$! tries=0
  printf '%s\n' "$pid" >"$RUN/$name.pid"
  disown
  # Until the chain has become the program, it would not be recognised as ours.
  until is_ours "$pid" "$name" || [ ! -e "/proc/$pid" ] || [ $((tries += 1)) -gt 250 ]; do sleep 0.02; done
}

# stop NAME [SECONDS]: TERM, then KILL after that time (5 s); returns when it is gone.
stop() {
  local name=$1 limit=${2:-5} pid deadline
  while pid=$(pid_of "$name"); do
    kill -TERM "$pid" 2>/dev/null || true
    deadline=$(($(now_ms) + limit * 1000))
    # Until it is really gone: one that is exiting has no arguments any more, so
    # is_ours would miss it, and still has its ports.
    while running "$pid"; do
      if [ "$(now_ms)" -ge "$deadline" ] && is_ours "$pid" "$name"; then kill -KILL "$pid" 2>/dev/null || true; fi
      sleep 0.05
    done
  done
  rm -f "$RUN/$name.pid"
}

# take_lock: one up or down at a time on a machine. Load-image does not need it.
take_lock() {
  exec 9>"$LOCK"
  if ! flock -n 9; then
    note "another up or down is running; waiting for it"
    flock 9
  fi
}

in_node() { nsenter --net="/run/netns/$NETNS" -- "$@"; }
ctr_() { ctr -a "$SOCK" -n k8s.io "$@"; }
kube() { "$BIN/kubectl" --kubeconfig "$ADMIN" "$@"; }
