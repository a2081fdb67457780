"""Steps of the system's clock, and a slow disk, inside processes of our own, never on the machine.

A shim over the C library (LD_PRELOAD) adds an offset to the wall time that its process reads. The offset lies in a
small file, which the process has mapped: whoever writes to it steps that process's clock while it runs. Whoever waits
for an instant of the wall time waits by the same clock: a step back makes that wait longer, as on the machine's own.
The second number in that file is how long each fsync takes in addition.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

OFFSET_FILE = "CRBO_CLOCK_OFFSET"  # the environment variable that names a process's file
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t none[2] = {0, 0};
static const volatile int64_t *offset = none; /* s, of the wall time alone; then ms that each fsync takes longer */

__attribute__((constructor)) static void map_the_file(void) {
    const char *name = getenv("CRBO_CLOCK_OFFSET");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return failed;
}

static void slow_disk(void) {
    struct timespec wait = {offset[1] / 1000, offset[1] % 1000 * 1000000};
    if (offset[1]) nanosleep(&wait, NULL);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    slow_disk();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    slow_disk();
    return real(file);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found)) return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *kept) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (kept) *kept = found.tv_sec;
    return found.tv_sec;
}

static void *next(const char *name, const char *version) {
    void *found = dlvsym(RTLD_NEXT, name, version); /* glibc keeps an older, incompatible one of that name */
    return found ? found : dlsym(RTLD_NEXT, name);
}

/* An instant of the stepped clock as one of the real clock. What lies before 2001 is of another clock. */
static struct timespec real_instant(const struct timespec *until) {
    struct timespec instant = *until;
    if (instant.tv_sec > 1000000000) instant.tv_sec -= *offset;
    return instant;
}

static int is_over(const struct timespec *until) {
    struct timespec now;
    if (until->tv_sec <= 1000000000) return 1;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) real = next("pthread_cond_timedwait", "GLIBC_2.3.2");
    for (;;) {
        struct timespec instant = real_instant(until);
        int failed = real(cond, mutex, &instant);
        if (failed != ETIMEDOUT || is_over(until)) return failed;
    }
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    static int (*real)(pthread_mutex_t *, const struct timespec *);
    if (!real) real = next("pthread_mutex_timedlock", "GLIBC_2.2.5");
    for (;;) {
        struct timespec instant = real_instant(until);
        int failed = real(mutex, &instant);
        if (failed != ETIMEDOUT || is_over(until)) return failed;
    }
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    static int (*real)(sem_t *, const struct timespec *);
    if (!real) real = next("sem_timedwait", "GLIBC_2.2.5");
    for (;;) {
        struct timespec instant = real_instant(until);
        if (!real(semaphore, &instant)) return 0;
        if (errno != ETIMEDOUT || is_over(until)) return -1;
    }
}
"""


class Clocks:
    """The wall clocks of some processes, each under a name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shim: Path | None = None

    def build(self) -> str:
        """Why clocks cannot be stepped here, or ""."""
        compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "c++", "g++"))), None)
        if compiler is None:
            return "there is no C compiler"
        self.folder.mkdir(parents=True, exist_ok=True)
        shim = self.folder / "clock.so"
        words = [compiler, "-x", "c", "-shared", "-fPIC", "-O2", "-o", str(shim), "-", "-ldl"]
        built = subprocess.run(words, input=SOURCE, text=True, capture_output=True)
        if built.returncode:
            return f"the C compiler failed: {built.stderr.strip()}"
        self._shim = shim
        return ""

    def environment(self, name: str) -> dict[str, str]:
        """For the process of that name; empty where clocks cannot be stepped."""
        if self._shim is None:
            return {}
        if not self._file(name).exists():
            self._file(name).write_bytes(struct.pack("=qq", 0, 0))
        return {"LD_PRELOAD": str(self._shim), OFFSET_FILE: str(self._file(name))}

    def step(self, name: str, seconds: int) -> None:
        """Its wall clock jumps by so much, now."""
        with self._file(name).open("r+b") as file:  # in place: the process has this very file mapped
            (offset,) = struct.unpack("=q", file.read(8))
            os.pwrite(file.fileno(), struct.pack("=q", offset + seconds), 0)

    def slow_down(self, name: str, milliseconds: int) -> None:
        """Each fsync of that process takes so much longer, from now on."""
        with self._file(name).open("r+b") as file:
            os.pwrite(file.fileno(), struct.pack("=q", milliseconds), 8)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.clock"
