"""Steps of the system's clock inside processes of our own, never on the machine.

A shim over the C library (LD_PRELOAD) adds an offset to the wall time that its process reads. The offset lies in a
small file, which the process has mapped: whoever writes to it steps that process's clock while it runs.
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
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t none = 0;
static const volatile int64_t *offset = &none; /* s, of the wall time alone */

__attribute__((constructor)) static void map_the_file(void) {
    const char *name = getenv("CRBO_CLOCK_OFFSET");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return failed;
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
            self._file(name).write_bytes(struct.pack("=q", 0))
        return {"LD_PRELOAD": str(self._shim), OFFSET_FILE: str(self._file(name))}

    def step(self, name: str, seconds: int) -> None:
        """Its wall clock jumps by so much, now."""
        with self._file(name).open("r+b") as file:  # in place: the process has this very file mapped
            (offset,) = struct.unpack("=q", file.read(8))
            os.pwrite(file.fileno(), struct.pack("=q", offset + seconds), 0)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.clock"
