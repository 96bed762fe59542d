// Runs shell commands in the virtual machine for `scripts/vm/vm exec`. Each TCP connection carries
// a command.
//
// Both directions carry frames: a length (32 bits, big-endian) and as many bytes. The agent
// receives the command, then the standard input of the command, then a frame of length 0. The agent
// sends the output of both streams together, then a frame of length 0 and a byte with the exit
// status. If a connection closes early, the agent kills the command and all processes in its group.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_COMMAND = 1 << 16, CHUNK = 1 << 16 };

struct job {
	pid_t pid;
	int in, out; // the agent's ends of the command's pipes; -1 once closed
};

static int read_all(int fd, void *to, size_t n)
{
	for (char *p = to; n > 0;) {
		ssize_t k = read(fd, p, n);
		if (k <= 0)
			return -1;
		p += k;
		n -= k;
	}
	return 0;
}

static int write_all(int fd, const void *from, size_t n)
{
	for (const char *p = from; n > 0;) {
		ssize_t k = write(fd, p, n);
		if (k <= 0)
			return -1;
		p += k;
		n -= k;
	}
	return 0;
}

static int read_length(int sock, uint32_t *n)
{
	if (read_all(sock, n, sizeof(*n)))
		return -1;
	*n = ntohl(*n);
	return 0;
}

static int write_frame(int sock, const void *from, uint32_t n)
{
	uint32_t header = htonl(n);

	return write_all(sock, &header, sizeof(header)) || write_all(sock, from, n) ? -1 : 0;
}

static int start(struct job *job, char *command)
{
	int in[2], out[2];

	if (pipe(in) || pipe(out))
		return -1;
	job->pid = fork();
	if (job->pid < 0)
		return -1;
	if (job->pid == 0) {
		setsid();
		dup2(in[0], 0);
		dup2(out[1], 1);
		dup2(out[1], 2);
		for (int fd = 3; fd < 64; fd++)
			close(fd);
		signal(SIGPIPE, SIG_DFL);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	job->in = in[1];
	job->out = out[0];
	return 0;
}

// Passes a frame of standard input to the command. If the command reads no more, the input is
// dropped.
static int pass_input(int sock, struct job *job)
{
	static char chunk[CHUNK];
	uint32_t left, n;

	if (read_length(sock, &left))
		return -1;
	if (left == 0 && job->in >= 0) {
		close(job->in);
		job->in = -1;
	}
	for (; left > 0; left -= n) {
		n = left < CHUNK ? left : CHUNK;
		if (read_all(sock, chunk, n))
			return -1;
		if (job->in >= 0 && write_all(job->in, chunk, n)) {
			close(job->in);
			job->in = -1;
		}
	}
	return 0;
}

static int pass_output(int sock, struct job *job)
{
	static char chunk[CHUNK];
	ssize_t n = read(job->out, chunk, sizeof(chunk));

	if (n > 0)
		return write_frame(sock, chunk, n);
	close(job->out);
	job->out = -1;
	return 0;
}

// Relays until the command has closed its output. Returns -1 if the connection ends before.
static int relay(int sock, struct job *job)
{
	while (job->out >= 0) {
		struct pollfd fds[2] = {{.fd = job->out, .events = POLLIN}, {.fd = sock, .events = POLLIN}};

		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return -1;
		if (fds[1].revents && pass_input(sock, job))
			return -1;
		if (fds[0].revents && pass_output(sock, job))
			return -1;
	}
	return 0;
}

static void serve(int sock)
{
	struct job job;
	char *command;
	uint32_t n;
	int status;

	if (read_length(sock, &n) || n > MAX_COMMAND)
		return;
	command = calloc(1, n + 1);
	if (!command || read_all(sock, command, n) || start(&job, command))
		return;
	if (relay(sock, &job)) {
		kill(-job.pid, SIGKILL);
		return;
	}
	waitpid(job.pid, &status, 0);
	unsigned char code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	if (write_frame(sock, "", 0) == 0)
		write_all(sock, &code, 1);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

	if (argc != 2)
		return 2;
	at.sin_port = htons(atoi(argv[1]));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 16)) {
		perror("agent");
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		int sock = accept(listener, NULL, NULL);

		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (sock < 0)
			continue;
		if (fork() == 0) {
			close(listener);
			serve(sock);
			_exit(0);
		}
		close(sock);
	}
}
