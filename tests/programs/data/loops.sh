#!/bin/sh
# Builds the suite of an event loop from Debian's sources, or runs the suite's tests in turn. Each
# test preloads OBJECT, unless OBJECT is empty.
# usage: loops.sh build DIR SUITE; loops.sh run DIR SUITE OBJECT [TEST...]
set -eu
step=$1 dir=$2 suite=$3
shift 3
cd "$dir"

# `debian VERB...` is apt-get with separate lists, because a system fetches no sources by default.
debian() {
    timeout 300 apt-get -q -o Dir::Etc::SourceList="$dir/apt/list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$dir/apt/lists" -o Acquire::Retries=2 "$@"
}
# `archive` writes a list with this machine's archive, for packages and sources.
archive() {
    mkdir -p apt/lists/partial
    from=$(. /etc/os-release && apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $VERSION_CODENAME" \
        'Component: main' | head -n 1)
    for kind in deb deb-src; do
        echo "$kind [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from bookworm main"
    done >apt/list
    debian update
}
source_of() {
    archive
    debian --download-only source "$1"
    dpkg-source -x "$1"_*.dsc source
}
if [ "$step" = build ]; then
    case $suite in
    libevent | libevent-musl)
        source_of libevent
        [ "$suite" = libevent ] || export CC=musl-gcc
        cmake -S source -B build -DCMAKE_BUILD_TYPE=Release -DEVENT__LIBRARY_TYPE=STATIC -DEVENT__DISABLE_OPENSSL=ON
        make -C build -j2 regress
        ;;
    libuv)
        source_of libuv1
        cmake -S source -B build -DBUILD_TESTING=ON
        make -C build -j2 uv_run_tests
        ;;
    asio)
        archive
        debian --download-only source boost1.74
        tar -xJf boost1.74_*.orig.tar.xz --strip-components=1 --wildcards '*/libs/asio/test/*'
        for name in io_context ip/tcp steady_timer signal_set posix/stream_descriptor local/connect_pair; do
            g++ -std=c++17 -w -pthread -o "$(basename $name)" libs/asio/test/$name.cpp
        done
        ;;
    asyncio)
        archive
        debian download libpython3.11-testsuite
        dpkg -x libpython3.11-testsuite_*.deb package
        cp -r /usr/lib/python3.11/test .
        cp -r package/usr/lib/python3.11/test/. test/
        ;;
    esac
    exit
fi

object=$1
shift
at=$dir
case $suite in
libevent*)
    # The list leaves out tests of helper functions, which use no loop, and tests of cancelled
    # requests, which wait ten seconds each for a server.
    all=$("$dir/build/bin/regress" --list-tests 2>&1 | sed -n 's/^ *\([a-z_]*\/[^ ]*\).*/\1/p' | grep -v -e ^util/ -e ^http/cancel_)
    ;;
libuv)
    export UV_RUN_AS_ROOT=1
    at=$dir/source
    # A line may name helpers after the test. The list leaves out tests of files, which use no loop,
    # and a test that measures the clock for seconds.
    all=$("$dir/build/uv_run_tests" --list | sed "s/ .*//" | grep -v -e ^fs_ -e ^hrtime)
    ;;
asio) all="io_context tcp steady_timer signal_set stream_descriptor connect_pair" ;;
asyncio) all="$*" ;;
esac
[ $# -eq 0 ] || all="$*"
[ -z "$object" ] || export LD_PRELOAD="$object:$LD_PRELOAD"
cd "$at"
for name in $all; do
    status=0
    case $suite in
    # A forked child has no device, so the tests do not fork.
    libevent*) out=$(timeout 60 "$dir/build/bin/regress" --no-fork "$name" 2>&1) || status=$? ;;
    libuv) out=$(timeout 60 "$dir/build/uv_run_tests" "$name" 2>&1) || status=$? ;;
    asio) out=$(timeout 60 "$dir/$name" 2>&1) || status=$? ;;
    asyncio) out=$(PYTHONPATH=$dir timeout 300 /usr/bin/python3 -m unittest "test.$name" 2>&1) || status=$? ;;
    esac
    # 7 is libuv's status if the machine cannot run the test.
    case $suite:$status in *:0) echo "ok $name" ;; libuv:7) echo "skip $name" ;; *) printf 'not ok %s: status %s\n%s\n' "$name" "$status" "$out" ;; esac
done
