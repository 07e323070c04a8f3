/* Loaded before a program's libraries, it moves the program's clock of the day by the seconds that the file $CLOCK_MOVED
 * tells, and leaves the clock that is never set alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long moved(void) {
	char text[32] = {0};
	const char *path = getenv("CLOCK_MOVED");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0) return 0;
	ssize_t length = read(file, text, sizeof text - 1);
	close(file);
	return length > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
	static int (*real)(clockid_t, struct timespec *);
	if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(clock, at);
	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += moved();
	return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
	(void)zone;
	struct timespec now;
	int result = clock_gettime(CLOCK_REALTIME, &now);
	at->tv_sec = now.tv_sec;
	at->tv_usec = now.tv_nsec / 1000;
	return result;
}

time_t time(time_t *at) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (at) *at = now.tv_sec;
	return now.tv_sec;
}
