# shellcheck shell=bash
# Sourced by `run` and `long`: steps, a folder `$work` that is removed at the end, and a table of the seconds of each step, which
# is printed after a failure too. Beside the seconds stands how much of all cores was busy: a step near 100 % gets shorter by less
# work, another one by less waiting.
work=$(mktemp -d)
began=$SECONDS
undo=(true)
step_name="" step_began=$SECONDS step_busy=0 step_all=0 step_names=() step_seconds=() step_loads=()

# The time of all cores since the machine started, in ticks: what was not idle, and all of it (proc(5), /proc/stat).
core_time() {
    awk '/^cpu / { for (i = 2; i <= 9; i++) all += $i; printf "%.0f %.0f\n", all - $5 - $6, all; exit }' /proc/stat
}

step() {
    end_step
    step_name=$1 step_began=$SECONDS
    read -r step_busy step_all < <(core_time)
    printf '\n=== %s (at %d s, %d GB free)\n' "$1" "$((SECONDS - began))" "$(free_gigabytes "$work")"
}

free_gigabytes() {
    printf '%d' "$(($(df --output=avail --block-size=1M "$1" | tail -1) / 1024))"
}

# A full disk ends a build with half a message of the linker, or of nothing: it is refused before.
require_disk() {
    local gigabytes=$1 folder free
    shift
    for folder in "$@"; do
        mkdir -p "$folder"
        free=$(free_gigabytes "$folder")
        [ "$free" -ge "$gigabytes" ] || fail "$folder has $free GB free and this run needs $gigabytes: remove old target folders"
    done
}

end_step() {
    [ -n "$step_name" ] || return 0
    step_names+=("$step_name")
    step_seconds+=("$((SECONDS - step_began))")
    local busy all
    read -r busy all < <(core_time)
    step_loads+=("$((all > step_all ? 100 * (busy - step_busy) / (all - step_all) : 0))")
    step_name=""
}

fail() {
    printf 'FAILED: %s\n' "$1" >&2
    exit 1
}

print_table() {
    local total=$((SECONDS - began)) index seconds
    printf '\nseconds  share  busy  step\n'
    for index in "${!step_names[@]}"; do
        seconds=${step_seconds[index]}
        printf '%7d %5d%% %4d%%  %s\n' "$seconds" "$((100 * seconds / (total > 0 ? total : 1)))" "${step_loads[index]}" \
            "${step_names[index]}"
    done
    printf '%7d   100%%        all\n' "$total"
    if [ "$total" -gt "${LIMIT:-$total}" ]; then
        printf 'OVER: at most %d s are wanted on two cores; the table says where they went\n' "$LIMIT"
    fi
}

at_exit() {
    local status=$? last=$step_name
    trap - EXIT
    end_step
    print_table
    [ "$status" -eq 0 ] || printf 'FAILED with %d in the step: %s\n' "$status" "${last:-none}"
    # A job with a session of its own ends with all processes of it, whatever their process groups are.
    jobs -p | xargs -r -I '{}' sh -c 'pkill -s {}; kill {}' 2>/dev/null || true
    "${undo[@]}"
    rm -rf "$work"
    exit "$status"
}
trap at_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Until the end of this run, packages of servers do not start them: what needs a server starts its own on loopback.
start_no_servers() {
    local policy=/usr/sbin/policy-rc.d
    [ ! -e "$policy" ] || return 0
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    undo=(rm -f "$policy")
}

# Installs Debian packages.
install_packages() {
    start_no_servers
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"; } >"$work/apt.log" 2>&1 ||
        { tail -20 "$work/apt.log"; fail "install $*"; }
}
