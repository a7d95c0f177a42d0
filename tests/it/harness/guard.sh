# Ends what one test process started, as soon as that process ends for any reason.
#
#   sh guard.sh watch       MARK FOLDER [PREFIX]   waits for the end of its input, then ends and removes everything
#   sh guard.sh kill        MARK FOLDER [PREFIX]   kills every process with the mark, at once
#   sh guard.sh signal=NAME MARK FOLDER [PREFIX]   sends a signal to every process with the mark
#
# MARK is the value of HARNESS_MARK in the environment of everything that was started. FOLDER is the
# server's private folder, or empty. PREFIX is a command that reads /proc as the server's user: in a
# container even root may not read the environment of another user's process.
mode=$1
mark=$2
folder=$3
prefix=$4

# Servers, their helpers and daemons such as epmd inherit the mark. Only PostgreSQL's children overwrite
# their environment with their title, but the title begins with the cluster's name, which is the mark too.
# The leading bracket keeps the second search from finding itself.
marked() {
    {
        $prefix grep -lsxzF "HARNESS_MARK=$mark" /proc/[0-9]*/environ
        $prefix grep -lsazE "^[p]ostgres: $mark: " /proc/[0-9]*/cmdline
    } | cut -d/ -f3 | sort -un
}

send() {
    pids=$(marked)
    # shellcheck disable=SC2086 # This is a list of process ids.
    [ -z "$pids" ] || kill -s "$1" $pids 2>/dev/null
}

# A process may start another one while we look, so the search is repeated until it finds nothing.
kill_all() {
    rounds=0
    while [ -n "$(marked)" ] && [ "$rounds" -lt 100 ]; do
        send KILL
        sleep 0.05
        rounds=$((rounds + 1))
    done
}

# PostgreSQL gets the chance to end by itself, because only then it frees its shared memory. Its main
# process is asked for an immediate shutdown. While initdb runs there is none yet (initdb's own servers
# write a negative process id into the same file); they die of any signal without cleaning up, but they
# end soon, since nobody reads initdb's output any more.
quit_postgres() {
    [ -d "$folder/data" ] || return 0
    postmaster=
    [ -s "$folder/data/postmaster.pid" ] && read -r postmaster <"$folder/data/postmaster.pid"
    case $postmaster in
    [1-9]*) if marked | grep -qx "$postmaster"; then kill -s QUIT "$postmaster" 2>/dev/null; fi ;;
    esac
    rounds=0
    while [ "$rounds" -lt 200 ] && [ -n "$(marked)" ]; do
        sleep 0.05
        rounds=$((rounds + 1))
    done
}

# A killed postmaster leaves its segment of shared memory behind; line 7 of its file names it.
free_shared_memory() {
    [ -s "$folder/data/postmaster.pid" ] || return 0
    segment=$(sed -n '7s/^ *[0-9][0-9]*  *\([0-9][0-9]*\) *$/\1/p' "$folder/data/postmaster.pid")
    [ -z "$segment" ] || $prefix ipcrm -m "$segment" 2>/dev/null
}

case $mode in
watch)
    # Ctrl-C and the like are meant for the test process; its end is what counts.
    trap '' HUP INT TERM
    while read -r _; do :; done
    # A process that was being started in this moment carries the mark a moment later.
    sleep 0.1
    # A stopped process would not see SIGQUIT.
    send CONT
    if [ -n "$folder" ]; then
        quit_postgres
    fi
    kill_all
    if [ -n "$folder" ]; then
        free_shared_memory
        rm -rf -- "$folder"
    fi
    ;;
kill)
    kill_all
    ;;
signal=*)
    # Twice, for processes that were being started during the first time.
    send "${mode#signal=}"
    send "${mode#signal=}"
    ;;
esac
