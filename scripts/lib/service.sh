# shellcheck shell=bash
# What scripts/kafka, scripts/registry, scripts/jaeger and scripts/local-model have in common: a program that runs on in the background
# after the script has ended, a folder with its pid file and log by which it is found again, and waiting with a deadline
# until it answers. Sourced, never run. Needs Linux: /proc, and setsid, flock and timeout.
#
# A service lives in a folder of its own: FOLDER/service.pid, FOLDER/service.log and what the service itself keeps.

CACHE=${STARLING_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME, XDG_CACHE_HOME or STARLING_CACHE}/.cache}/starling}
CACHE=$(realpath -m -- "$CACHE")
RUN=$CACHE/run # this script's lock, and one link per listening port to the folder of the service behind it
SELF=${0##*/}

say() { printf '%s: %s\n' "$SELF" "$*" >&2; }
die() {
  say "$@"
  exit 1
}

# The caller's mistake, told apart from a failure by exit code 2.
bad_usage() {
  say "$1 (see scripts/$SELF --help)"
  exit 2
}

# need COMMAND REMEDY: end with the remedy when a program is missing.
need() { command -v "$1" >/dev/null 2>&1 || die "'$1' is missing; install it: $2"; }

# port_option OPTION VALUE: refuse what is not a port. 0 stands for a free one.
port_option() {
  if [[ ! $2 =~ ^(0|[1-9][0-9]{0,4})$ ]] || (($2 > 65535)); then
    bad_usage "$1 wants a port number, or 0 for a free port, not '$2'"
  fi
}

# on_exit COMMAND...: run it when the script ends, even by a signal; `trap - EXIT` takes it back.
on_exit() {
  local words
  printf -v words '%q ' "$@"
  # shellcheck disable=SC2064 # the words as they are now
  trap "{ $words; } || true" EXIT
}

# lock: wait for, then hold, this script's lock until `unlock` or the end of the script, so that two that are started
# together neither download twice nor choose the same ports.
lock() {
  mkdir -p "$RUN"
  exec 9>"$RUN/$SELF.lock"
  if ! flock -n 9; then
    say "waiting for another scripts/$SELF to finish"
    flock 9
  fi
}
unlock() { exec 9>&-; }

# Something listens on this port of the loopback address.
port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A service of ours was given this port and still runs, perhaps not listening yet.
port_claimed() {
  local link
  for link in "$RUN"/*-"$1"; do
    if live_pid "$link" >/dev/null; then return 0; fi
  done
  return 1
}

# free_port: print one. It lies below the range from which the kernel gives ports to outgoing connections, so that no
# client takes it between now and the moment the service listens.
free_port() {
  local port try
  for ((try = 0; try < 200; try++)); do
    port=$((15000 + RANDOM % 17000))
    if ! port_claimed "$port" && ! port_open "$port"; then
      echo "$port"
      return
    fi
  done
  die "found no free port between 15000 and 32000"
}

# check_port PORT OPTION: end when something has the port; the option is the one to choose another with.
check_port() {
  if port_claimed "$1" || port_open "$1"; then
    die "port $1 is in use; choose another with $2 PORT, or a free one with $2 0"
  fi
}

# claim_port PORT FOLDER, owner_of PORT, release_ports FOLDER: which folder's service has a port.
claim_port() {
  mkdir -p "$RUN"
  ln -sfn "$2" "$RUN/$SELF-$1"
}
owner_of() { readlink "$RUN/$SELF-$1"; }
release_ports() {
  local link
  for link in "$RUN/$SELF"-*; do
    if [[ -L $link && $(readlink "$link") == "$1" ]]; then rm -f "$link"; fi
  done
}

# started_at PID: print when a live process started, as the kernel counts; nothing for one that has ended. A pid file
# keeps it beside the pid, so that a later process with the same number is never taken for ours.
started_at() {
  local stat fields
  { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 0
  read -ra fields <<<"${stat##*) }" # the process name before the last ')' may hold blanks
  if [[ ${fields[0]} != Z ]]; then echo "${fields[19]}"; fi
}

# live_pid FOLDER: print the pid of the folder's service if that very process still runs, else return 1.
live_pid() {
  local pid start
  { read -r pid && read -r start; } 2>/dev/null <"$1/service.pid" || return 1
  [[ $pid =~ ^[0-9]+$ && -n $start && $(started_at "$pid") == "$start" ]] && echo "$pid"
}

# spawn FOLDER COMMAND...: let it run on in a session of its own, holding neither our output nor our lock.
spawn() {
  local folder=$1 pid
  shift
  setsid "$@" </dev/null >"$folder/service.log" 2>&1 9>&- &
  pid=$!
  printf '%s\n%s\n' "$pid" "$(started_at "$pid")" >"$folder/service.pid.new"
  mv "$folder/service.pid.new" "$folder/service.pid"
}

# http_ok PORT PATH: a GET is answered with status 200.
http_ok() {
  local line
  line=$({
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' "$2" >&3
    timeout 2 head -n 1 <&3
  } 2>/dev/null) || return 1
  [[ $line == HTTP/*' 200 '* ]]
}

# wait_ready FOLDER SECONDS CHECK...: wait until CHECK succeeds. Show the end of the log and return 1 when the process
# ends first or time is up.
wait_ready() {
  local folder=$1 deadline=$((SECONDS + $2)) trouble=
  shift 2
  until "$@"; do
    if ! live_pid "$folder" >/dev/null; then
      trouble="it ended before it was ready"
    elif ((SECONDS >= deadline)); then
      trouble="it did not answer in time"
    else
      sleep 0.1
      continue
    fi
    say "$trouble; the end of $folder/service.log:"
    tail -n 20 "$folder/service.log" >&2 || true
    return 1
  done
}

# stop_process FOLDER [SECONDS]: TERM, KILL after 15 or so many seconds; return when the process is gone, or 1 at once
# when there was none.
stop_process() {
  local folder=$1 grace=${2:-15} pid signal deadline
  pid=$(live_pid "$folder") || {
    rm -f "$folder/service.pid"
    return 1
  }
  for signal in TERM KILL; do
    kill -s "$signal" "$pid" 2>/dev/null || true
    deadline=$((SECONDS + grace))
    while live_pid "$folder" >/dev/null; do
      if ((SECONDS >= deadline)); then
        say "process $pid is still there $grace s after SIG$signal"
        continue 2
      fi
      sleep 0.1
    done
    rm -f "$folder/service.pid"
    return 0
  done
  die "process $pid could not be ended"
}

# end_service FOLDER: stop its process and give back its ports. Return 1 when none ran.
end_service() {
  local result=0
  stop_process "$1" || result=1
  release_ports "$1"
  return $result
}
