//! The C library's functions that this module calls.

use crate::real::reals;

reals! {
    MEMALIGN = c"memalign";
    ALIGNED_ALLOC = c"aligned_alloc";
    VALLOC = c"valloc";
    PVALLOC = c"pvalloc";
    POSIX_MEMALIGN = c"posix_memalign";
    MALLOC_USABLE_SIZE = c"malloc_usable_size";
    FREE = c"free";
    REALLOC = c"realloc";
    MADVISE = c"madvise";
    MREMAP = c"mremap";
    C_SYSCALL = c"syscall";
    FORK = c"fork";
    BARE_FORK = c"_Fork";
    CLONE = c"clone";
    REGISTER_ATFORK = c"__register_atfork";
    SET_STACK = c"pthread_attr_setstack";
}
