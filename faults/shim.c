/* Disturbs one call of a process on a file below a folder; loaded with LD_PRELOAD.

   FAULT=KIND:N:ERROR:FOLDER:MARK disturbs the N-th write, sync or rename: a positive ERROR is the
   errno of the failing call, a negative one is the signal that the process gets; of a write, half
   is written before. `disk` is a write from which on all fail. KIND `clock` moves the clock of the
   wall by ERROR seconds from the N-th time it is read. MARK is a file that says that it happened. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WRITE, SYNC, RENAME, CLOCK, KINDS };
static const char *names[KINDS] = {"write", "sync", "rename", "clock"};
static atomic_long counts[KINDS];
static long wanted, error;
static int kind = -1, stays, fired;
static char folder[1024], mark[1024];

void fault_arm(const char *text) {
    char word[16];
    kind = -1, fired = 0;
    for (int i = 0; i < KINDS; i++) counts[i] = 0;
    if (!text || sscanf(text, "%15[^:]:%ld:%ld:%1023[^:]:%1023s", word, &wanted, &error, folder, mark) != 5) return;
    const char *call = strcmp(word, "disk") ? word : "write";
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(call, names[i])) kind = i;
    stays = call != word || kind == CLOCK;
}

long fault_count(int of) { return counts[of]; }

__attribute__((constructor)) static void begin(void) { fault_arm(getenv("FAULT")); }

static int once(void) { /* only in the first process that comes here */
    long file = syscall(SYS_openat, AT_FDCWD, mark, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (file >= 0) syscall(SYS_close, file);
    return file >= 0;
}

static int is_due(int of) {
    long now = ++counts[of];
    if (of != kind) return 0;
    if (fired) return stays;
    return now >= wanted && (fired = 1) && (once() || stays);
}

static int below(int file) {
    char link[64], path[1024];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return !strncmp(path, folder, strlen(folder));
}

/* Whether the call must fail; a signal that is handled lets it pass. */
static int fails(int of) {
    if (!is_due(of)) return 0;
    if (error < 0) syscall(SYS_kill, getpid(), -error);
    errno = error;
    return error > 0;
}

ssize_t write(int file, const void *data, size_t size) {
    if (kind >= 0 && below(file) && is_due(WRITE)) {
        long half = syscall(SYS_write, file, data, size / 2);
        if (error < 0) syscall(SYS_kill, getpid(), -error);
        if (error < 0) return half;
        errno = error;
        return -1;
    }
    return syscall(SYS_write, file, data, size);
}

int fsync(int file) {
    return kind >= 0 && below(file) && fails(SYNC) ? -1 : syscall(SYS_fsync, file);
}

int rename(const char *old, const char *new) {
    int is_ours = kind >= 0 && !strncmp(new, folder, strlen(folder));
    return is_ours && fails(RENAME) ? -1 : syscall(SYS_rename, old, new);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (kind == CLOCK && clock == CLOCK_REALTIME && is_due(CLOCK)) now->tv_sec += error;
    return result;
}
