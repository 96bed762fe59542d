#!/bin/sh
# Builds UCX and its own tests of transports, of the release that Debian has, in a directory; does nothing twice.
# Wants Debian's dpkg-dev, autoconf, automake, libtool, libibverbs-dev, librdmacm-dev.
# usage: ucx_gtest.sh DIR; then DIR/ucx/test/gtest/gtest is the program
set -eu
version=1.13.1-1
mkdir -p "$1/apt/lists/partial"
cd "$1"
if [ ! -f .fetched ]; then
    # Debian's sources are not among what a system fetches by default: a list of its own.
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
    # Warnings of newer compilers are no concern of ours.
    ./configure --enable-gtest --enable-mt --enable-assertions --enable-params-check --with-verbs --with-rdmacm \
        --with-mlx5-dv=no --without-cuda --without-rocm --without-java --without-go --without-knem --without-xpmem \
        --without-fuse3 --disable-doxygen-doc --disable-static \
        CFLAGS='-O1 -g0 -Wno-error' CXXFLAGS='-O1 -g0 -Wno-error'
fi
for part in src/ucm src/ucs src/uct src/ucp src/tools/perf/lib test/gtest/common/googletest; do make -j1 -C $part; done
cd test/gtest
# This file has what must be inlined behind a pointer, which less than -O2 does not.
make -j1 uct/gtest-test_tag.o CXXFLAGS='-O2 -g0 -Wno-error'
# The tests of the transports alone. UCX's own data structures and its hooks of malloc have nothing to do with a device;
# UCP's tests go through the transports and are not built yet.
objects=$(printf 'include Makefile\nshow:\n\t@echo $(filter-out ucs/%% ucm/%% ucp/%%,$(gtest_OBJECTS))\n' | make -s -f - show)
make -j1 gtest gtest_OBJECTS="$objects"
