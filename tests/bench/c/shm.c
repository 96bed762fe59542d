// Measures the memory of this machine for two processes that share memory, without RDMA. The
// results are limits for the same-host path. Usage:
//     shm spin BYTES MS CPU CPU   half a round trip of a message, between two processors
//     shm put BYTES MS CPU        a copy from private to shared memory, by one process
//     shm get BYTES MS CPU        a copy from shared to private memory, by one process
//     shm fadd MS CPU             an atomic fetch-and-add on shared memory without contention
// The program prints seconds: the median of batches that are long enough for the clock. The
// receiver or another process verifies every byte. A wrong byte ends the program with status 1.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORD sizeof(uint64_t)
#define STOP UINT64_MAX
// The largest number of batches with stored times.
#define BATCHES (1 << 20)
// The bytes of a batch of copies, and the round trips of a batch of messages.
#define BATCH_BYTES (256u << 10)
#define BATCH_TRIPS 64

static void fail(const char *what) {
    fprintf(stderr, "shm: %s\n", what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
}

static unsigned char *map(size_t n, int shared) {
    int flags = MAP_ANONYMOUS | MAP_POPULATE | (shared ? MAP_SHARED : MAP_PRIVATE);
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED)
        fail("mmap");
    return p;
}

// The byte at an offset of a message. Neighbouring words differ.
static unsigned char byte_at(size_t i, unsigned seed) { return (unsigned char)(i * 31 + (i >> 8) * 7 + seed); }

static void fill(unsigned char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++)
        p[i] = byte_at(i, seed);
}

static void check(const unsigned char *p, size_t from, size_t to, unsigned seed) {
    for (size_t i = from; i < to; i++)
        if (p[i] != byte_at(i, seed))
            fail("a byte is wrong");
}

static double times[BATCHES];

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(size_t count) {
    if (!count)
        fail("nothing was measured");
    qsort(times, count, sizeof *times, compare);
    return times[count / 2];
}

static void end_of(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
        fail("the other process found something wrong");
}

static pid_t second(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (!child)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

// Sends a message as `ib_write_lat` does: the last bytes show that the whole message has arrived.
// Here the last word is the number of the message, and is written last.
static void send_message(unsigned char *to, const unsigned char *from, size_t n, uint64_t number) {
    if (n > WORD)
        memcpy(to, from, n - WORD);
    atomic_store_explicit((_Atomic uint64_t *)(to + n - WORD), number, memory_order_release);
}

// Spins until message `number` has arrived. Returns 0 if the sender has stopped.
static int await_message(unsigned char *at, size_t n, uint64_t number) {
    _Atomic uint64_t *word = (_Atomic uint64_t *)(at + n - WORD);
    uint64_t seen;
    while ((seen = atomic_load_explicit(word, memory_order_acquire)) != number)
        if (seen == STOP)
            return 0;
    return 1;
}

static void echo(unsigned char *ping, unsigned char *pong, size_t n, int cpu) {
    unsigned char *own = map(n, 0);
    pin(cpu);
    fill(own, n, 2);
    for (uint64_t number = 1; await_message(ping, n, number); number++) {
        // Checks a byte of each message here, and all bytes at the end. A check of every byte would
        // take longer than the measured limit.
        if (n > WORD)
            check(ping, (number * WORD) % (n - WORD), (number * WORD) % (n - WORD) + 1, 1);
        send_message(pong, own, n, number);
    }
    check(ping, 0, n - WORD, 1);
}

static double spin(size_t n, double time, int here, int there) {
    if (n < WORD || n % WORD)
        fail("the size must be a multiple of eight");
    unsigned char *ping = map(n, 1), *pong = map(n, 1), *own = map(n, 0);
    pid_t child = second();
    if (!child) {
        echo(ping, pong, n, there);
        _exit(0);
    }
    pin(here);
    fill(own, n, 1);
    uint64_t number = 0;
    size_t count = 0;
    double start = now(), end = start + time;
    while (start < end && count < BATCHES) {
        for (int i = 0; i < BATCH_TRIPS; i++) {
            send_message(ping, own, n, ++number);
            await_message(pong, n, number);
        }
        double stop = now();
        times[count++] = (stop - start) / BATCH_TRIPS / 2;
        start = stop;
    }
    check(pong, 0, n - WORD, 2);
    send_message(ping, own, n, STOP);
    end_of(child);
    return median(count);
}

// A child process checks the shared memory after the copies.
static void seen_elsewhere(const unsigned char *shared, size_t n, unsigned seed) {
    pid_t child = second();
    if (!child) {
        check(shared, 0, n, seed);
        _exit(0);
    }
    end_of(child);
}

static double copy(size_t n, double time, int cpu, int put) {
    unsigned char *private = map(n, 0), *shared = map(n, 1);
    unsigned char *from = put ? private : shared, *to = put ? shared : private;
    size_t batch = n < BATCH_BYTES ? BATCH_BYTES / n : 1, count = 0;
    pin(cpu);
    fill(from, n, 3);
    double start = now(), end = start + time;
    while (start < end && count < BATCHES) {
        for (size_t i = 0; i < batch; i++) {
            memcpy(to, from, n);
            // Tells the compiler that both buffers are read here, so that the compiler removes no
            // copy.
            __asm__ volatile("" : : "r"(to), "r"(from) : "memory");
        }
        double stop = now();
        times[count++] = (stop - start) / (double)batch;
        start = stop;
    }
    check(to, 0, n, 3);
    seen_elsewhere(shared, n, 3);
    return median(count);
}

static double fadd(double time, int cpu) {
    _Atomic uint64_t *word = (_Atomic uint64_t *)map(4096, 1);
    size_t batch = 4096, count = 0;
    pin(cpu);
    double start = now(), end = start + time;
    while (start < end && count < BATCHES) {
        for (size_t i = 0; i < batch; i++) {
            uint64_t old = atomic_fetch_add(word, 1);
            __asm__ volatile("" : : "r"(old) : "memory");
        }
        double stop = now();
        times[count++] = (stop - start) / (double)batch;
        start = stop;
    }
    if (atomic_load(word) != batch * count)
        fail("an addition is lost");
    return median(count);
}

static long number(const char *s) {
    char *end;
    long n = strtol(s, &end, 10);
    if (*end || n < 0)
        fail("a number is wanted");
    return n;
}

int main(int argc, char **argv) {
    long n[4] = {0};
    for (int i = 2; i < argc && i < 6; i++)
        n[i - 2] = number(argv[i]);
    const char *what = argc > 1 ? argv[1] : "";
    // Limits the wait for a message that never comes.
    alarm(60);
    double found;
    if (!strcmp(what, "spin") && argc == 6)
        found = spin((size_t)n[0], (double)n[1] * 1e-3, (int)n[2], (int)n[3]);
    else if (!strcmp(what, "put") && argc == 5)
        found = copy((size_t)n[0], (double)n[1] * 1e-3, (int)n[2], 1);
    else if (!strcmp(what, "get") && argc == 5)
        found = copy((size_t)n[0], (double)n[1] * 1e-3, (int)n[2], 0);
    else if (!strcmp(what, "fadd") && argc == 4)
        found = fadd((double)n[0] * 1e-3, (int)n[1]);
    else
        fail("usage: shm spin BYTES MS CPU CPU | put BYTES MS CPU | get BYTES MS CPU | fadd MS CPU");
    printf("%.6e\n", found);
    return 0;
}
