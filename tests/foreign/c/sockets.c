/* Tests calls with plain sockets and descriptors: waits, closes, epoll sets. usage: sockets RULE;
 * prints "ok" at the end. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(it)                                                               \
  do {                                                                         \
    if (!(it)) {                                                               \
      printf("line %d: %s\n", __LINE__, #it);                                  \
      fflush(stdout);                                                          \
      _exit(1);                                                                \
    }                                                                          \
  } while (0)

static struct sockaddr_in at = {.sin_family = AF_INET};
static int listener, near_end, far_end;

static void *connects(void *unused) {
  (void)unused;
  near_end = socket(AF_INET, SOCK_STREAM, 0);
  MUST(connect(near_end, (void *)&at, sizeof at) == 0);
  return NULL;
}

static void begin(void) {
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t len = sizeof at;
  listener = socket(AF_INET, SOCK_STREAM, 0);
  MUST(bind(listener, (void *)&at, len) == 0 && listen(listener, 5) == 0);
  MUST(getsockname(listener, (void *)&at, &len) == 0);
}

static void connected(void) {
  pthread_t thread;
  begin();
  MUST(pthread_create(&thread, NULL, connects, NULL) == 0);
  far_end = accept(listener, NULL, NULL);
  MUST(far_end >= 0 && pthread_join(thread, NULL) == 0);
}

/* A timed-out wait does not change the next wait. */
static void waits(void) {
  begin();
  int set = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  MUST(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0);
  for (int round = 0; round < 3; round++) {
    struct pollfd polled = {listener, POLLIN, 0};
    MUST(poll(&polled, 1, 50) == 0);
    struct timespec time = {0, 50000000};
    MUST(ppoll(&polled, 1, &time, NULL) == 0);
    fd_set read;
    FD_ZERO(&read);
    FD_SET(listener, &read);
    struct timeval value = {0, 50000};
    MUST(select(listener + 1, &read, NULL, NULL, &value) == 0);
    MUST(epoll_wait(set, &event, 1, 50) == 0);
  }
}

/* Opens a file at the descriptor `number`. A write must go to the file, and the peer of the former
 * socket must get no byte. */
static void is_a_file(int number) {
  FILE *kept = tmpfile();
  MUST(kept != NULL && (fileno(kept) == number || dup2(fileno(kept), number) == number));
  struct stat found;
  MUST(write(number, "mine", 4) == 4);
  MUST(fstat(number, &found) == 0 && S_ISREG(found.st_mode) && found.st_size == 4);
  char byte;
  ssize_t got = recv(near_end, &byte, 1, 0);
  MUST(got == 0);
}

static void range(void) {
  connected();
  MUST(close_range(far_end, far_end, 0) == 0);
  is_a_file(far_end);
}

static void stream(void) {
  connected();
  FILE *file = fdopen(far_end, "r");
  MUST(file != NULL && fclose(file) == 0);
  is_a_file(far_end);
}

/* If a descriptor is made to refer to another epoll set, waits must not find the items of the
 * former set. */
static void sets(void) {
  connected();
  MUST(send(near_end, "x", 1, 0) == 1);
  struct epoll_event event = {.events = EPOLLIN}, found;
  int set = epoll_create1(0), empty = epoll_create1(0);
  MUST(epoll_ctl(set, EPOLL_CTL_ADD, far_end, &event) == 0);
  MUST(epoll_wait(set, &found, 1, 30000) == 1);
  MUST(dup2(empty, set) == set && epoll_wait(set, &found, 1, 50) == 0);
  MUST(epoll_ctl(set, EPOLL_CTL_ADD, far_end, &event) == 0);
  MUST(epoll_wait(set, &found, 1, 30000) == 1);
  MUST(close_range(empty, empty, 0) == 0 && close_range(set, set, 0) == 0);
  int next = epoll_create1(0);
  MUST(next == set || dup2(next, set) == set);
  MUST(epoll_wait(set, &found, 1, 50) == 0);
}

enum { SPARE = 100 };
static int spare[SPARE];
static volatile sig_atomic_t closed;

static void closes(int signal) {
  (void)signal;
  if (closed < SPARE)
    close(spare[closed++]);
}

/* A signal handler closes descriptors while its thread changes an epoll set. */
static void handler(void) {
  begin();
  for (int i = 0; i < SPARE; i++)
    spare[i] = socket(AF_INET, SOCK_STREAM, 0);
  int set = epoll_create1(0);
  struct sigaction action = {.sa_handler = closes, .sa_flags = SA_RESTART};
  MUST(sigaction(SIGALRM, &action, NULL) == 0);
  struct itimerval every = {{0, 700}, {0, 700}};
  MUST(setitimer(ITIMER_REAL, &every, NULL) == 0);
  struct epoll_event event = {.events = EPOLLIN};
  while (closed < SPARE) {
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == 0);
    MUST(epoll_ctl(set, EPOLL_CTL_MOD, listener, &event) == 0);
    MUST(epoll_ctl(set, EPOLL_CTL_DEL, listener, &event) == 0);
  }
}

/* A child closes descriptors. The parent must still be able to use the same descriptors. */
static void child(void) {
  connected();
  pid_t pid = fork();
  if (pid == 0) {
    MUST(close(far_end) == 0 && close(listener) == 0);
    int file = open("/dev/zero", O_RDONLY);
    char byte = 1;
    MUST(file >= 0 && read(file, &byte, 1) == 1 && byte == 0);
    _exit(0);
  }
  int status;
  char byte;
  MUST(waitpid(pid, &status, 0) == pid && status == 0);
  MUST(send(near_end, "x", 1, 0) == 1 && recv(far_end, &byte, 1, 0) == 1 && byte == 'x');
  MUST(send(far_end, "y", 1, 0) == 1 && recv(near_end, &byte, 1, 0) == 1 && byte == 'y');
}

/* `select` must accept a set that is longer than fd_set. */
static void numbers(void) {
  begin();
  struct rlimit most = {2000, 2000};
  int ends[2], high = 1100;
  MUST(setrlimit(RLIMIT_NOFILE, &most) == 0 && pipe(ends) == 0 && dup2(ends[0], high) == high);
  for (int ready = 0; ready < 2; ready++) {
    unsigned long words[32] = {0};
    words[listener / 64] |= 1ul << listener % 64;
    words[high / 64] |= 1ul << high % 64;
    struct timeval time = {0, 50000};
    MUST(select(high + 1, (void *)words, NULL, NULL, &time) == ready);
    MUST((words[high / 64] >> high % 64 & 1) == (unsigned long)ready);
    MUST(write(ends[1], "x", 1) == 1);
  }
}

int main(int count, char **words) {
  static const struct {
    const char *name;
    void (*run)(void);
  } rules[] = {{"waits", waits},     {"range", range}, {"stream", stream},  {"sets", sets},
               {"handler", handler}, {"child", child}, {"numbers", numbers}};
  for (size_t i = 0; count > 1 && i < sizeof rules / sizeof *rules; i++) {
    if (strcmp(words[1], rules[i].name) == 0) {
      rules[i].run();
      puts("ok");
      fflush(stdout);
      _exit(0);
    }
  }
  return 2;
}
