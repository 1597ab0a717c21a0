/* Moves the clock on the wall by as many seconds as stand in the file that $MOVED_CLOCK names. The monotonic
   clock stays. Loaded into a program with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long moved_by(void) {
    char text[32] = "";
    const char *path = getenv("MOVED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = '\0';
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*original)(clockid_t, struct timespec *);
    if (!original) original = dlsym(RTLD_NEXT, "clock_gettime");
    int result = original(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += moved_by();
    return result;
}
