#!/bin/sh
# Builds UCX and UCX's own tests of transports in a directory, in the release that Debian has.
# Repeats no step that is done. Needs Debian's dpkg-dev, autoconf, automake, libtool,
# libibverbs-dev, librdmacm-dev.
# usage: ucx_gtest.sh DIR; then DIR/ucx/test/gtest/gtest is the program
set -eu
version=1.13.1-1
mkdir -p "$1/apt/lists/partial"
cd "$1"
if [ ! -f .fetched ]; then
    # A system does not fetch Debian's sources by default, so apt gets a separate list.
    echo 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main' >apt/list
    apt() {
        timeout 300 apt-get -q -o Dir::Etc::SourceList="$PWD/apt/list" -o Dir::Etc::SourceParts=/dev/null \
            -o Dir::State::Lists="$PWD/apt/lists" -o Acquire::Retries=2 "$@"
    }
    apt update
    apt --download-only source ucx=$version
    rm -rf ucx
    dpkg-source -x ucx_$version.dsc ucx
    touch .fetched
fi
cd ucx
if [ ! -f test/gtest/Makefile ]; then
    ./autogen.sh
    # Warnings of newer compilers do not matter here.
    ./configure --enable-gtest --enable-mt --enable-assertions --enable-params-check --with-verbs --with-rdmacm \
        --with-mlx5-dv=no --without-cuda --without-rocm --without-java --without-go --without-knem --without-xpmem \
        --without-fuse3 --disable-doxygen-doc --disable-static \
        CFLAGS='-O1 -g0 -Wno-error' CXXFLAGS='-O1 -g0 -Wno-error'
fi
for part in src/ucm src/ucs src/uct src/ucp src/tools/perf/lib test/gtest/common/googletest; do make -j1 -C $part; done
cd test/gtest
# This file calls a function through a pointer, and the call must be inlined. Only -O2 inlines the
# call.
make -j1 uct/gtest-test_tag.o CXXFLAGS='-O2 -g0 -Wno-error'
# Builds only the tests of the transports. UCX's own data structures and hooks of malloc have
# nothing to do with a device. UCP's tests go through the transports, and are not built yet.
objects=$(printf 'include Makefile\nshow:\n\t@echo $(filter-out ucs/%% ucm/%% ucp/%%,$(gtest_OBJECTS))\n' | make -s -f - show)
make -j1 gtest gtest_OBJECTS="$objects"
