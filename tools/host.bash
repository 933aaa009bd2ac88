# Facts for scripts about the Open MPI that runs their jobs. Sourced, never run itself.
# shellcheck shell=bash

# host_read [MPIRUN]: sets host_series, such as 5.0, and host_sm, the name of its shared-memory BTL.
host_read() {
    host_series=$("${1:-mpirun}" --version 2>/dev/null | sed -n '1s/^mpirun (Open MPI) \([0-9]*\.[0-9]*\).*/\1/p')
    host_sm=vader
    [[ $host_series == 4.* ]] && return
    host_sm=sm
    # PMIx searches the directory of velo as well, and complains of each plugin there that is not its own.
    export PMIX_MCA_mca_base_component_show_load_errors=none
}

# host_path DIR: the value of mca_base_component_path that makes jobs find the plugin in DIR. mpirun of 4.1 searches it
# for its own plugins, and needs SYSTEM_DEFAULT in it; that of 5.0 has none to find, and complains of the word.
host_path() {
    if [[ $host_series == 4.* ]]; then printf '%s:SYSTEM_DEFAULT' "$1"; else printf '%s' "$1"; fi
}

# mpirun of 5.0 prints NUL bytes, at which grep takes what it reads for no text.
grep() { command grep -a "$@"; }
