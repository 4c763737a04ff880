/* Counts the calls of this process and its children that change files below one directory, and disturbs one of them.

   Loaded with LD_PRELOAD. `write_faults_use` (or the variable WRITE_FAULTS in a child that is executed) names a control
   file, which all processes of the command map into their memory. tests/support/write_faults.py writes and reads it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum mode { COUNT = 0, KILL_BEFORE, KILL_AFTER, FAIL, FAIL_FROM, SHORT, DONE_THEN_FAIL };

struct control {
    int64_t counter;      /* the number of calls so far */
    int64_t point;        /* the call that is disturbed; the first one is 1 */
    int32_t mode;
    int32_t error;        /* the errno of FAIL, FAIL_FROM and DONE_THEN_FAIL */
    int32_t fired;        /* how many calls were disturbed */
    int32_t group;        /* the process group of the command; its first process sets it */
    char directory[1024]; /* calls for files below it are counted; it ends with "/" */
    char trace[1024];     /* a file that gets one line for each call; empty for none */
    char call[32];        /* the first disturbed call */
    char path[2048];      /* and its path */
};

static struct control *control;

void write_faults_use(const char *path) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) abort();
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (mapped == MAP_FAILED) abort();
    control = mapped;
    int32_t none = 0;
    __atomic_compare_exchange_n(&control->group, &none, getpgrp(), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WRITE_FAULTS");
    if (path != NULL && *path) write_faults_use(path);
}

/* Write the absolute path into `out` (PATH_MAX bytes); return whether it is below the directory. */
static int is_below(int dirfd, const char *path, char *out) {
    size_t length = 0;
    if (control == NULL || path == NULL) return 0;
    if (path[0] != '/') {
        char link[64];
        if (dirfd == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
        ssize_t size = readlink(link, out, PATH_MAX - 2);
        if (size < 0) return 0;
        length = (size_t)size;
        out[length++] = '/';
    }
    snprintf(out + length, PATH_MAX - length, "%s", path);
    size_t prefix = strlen(control->directory);
    return strncmp(out, control->directory, prefix) == 0 || strlen(out) + 1 == prefix;
}

static int is_open_below(int fd, char *out) {
    if (control == NULL) return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, out, PATH_MAX - 1);
    if (size < 0) return 0;
    out[size] = 0;
    size_t prefix = strlen(control->directory);
    return strncmp(out, control->directory, prefix) == 0 || strlen(out) + 1 == prefix;
}

static int is_file_below(int fd, char *out) {
    struct stat status;
    return control != NULL && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && is_open_below(fd, out);
}

static void die(void) {
    if (control->group != getpgrp()) syscall(SYS_kill, -control->group, SIGKILL); /* Spark's workers have their own */
    syscall(SYS_kill, 0, SIGKILL);
    for (;;) pause();
}

/* Count a call. Return the mode that it gets. KILL_BEFORE does not return. */
static enum mode arrive(const char *call, const char *path) {
    int64_t number = __atomic_add_fetch(&control->counter, 1, __ATOMIC_SEQ_CST);
    if (control->trace[0]) {
        char line[PATH_MAX + 64];
        size_t prefix = strlen(control->directory); /* the path of the directory itself is shorter */
        int size = snprintf(line, sizeof line, "%s %s\n", call, strlen(path) < prefix ? "." : path + prefix);
        int fd = (int)syscall(SYS_openat, AT_FDCWD, control->trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd >= 0) {
            syscall(SYS_write, fd, line, (size_t)size);
            syscall(SYS_close, fd);
        }
    }
    int is_it = number == control->point || (control->mode == FAIL_FROM && number > control->point);
    if (!is_it || control->mode == COUNT) return COUNT;
    if (__atomic_fetch_add(&control->fired, 1, __ATOMIC_SEQ_CST) == 0) {
        snprintf(control->call, sizeof control->call, "%s", call);
        snprintf(control->path, sizeof control->path, "%s", path);
    }
    if (control->mode == KILL_BEFORE) die();
    return control->mode;
}

#define REAL(name)                                                                                                    \
    ({                                                                                                                \
        static __typeof__(&name) real_;                                                                               \
        if (real_ == NULL) real_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                        \
        real_;                                                                                                        \
    })

/* Run the body of a wrapper: `CALL` is the real call, of type `kind`. A condition tells whether the call is counted.
   For SHORT, `shorter` halves its size. */
#define SHORTENED(kind, label, condition, shorter, CALL)                                                              \
    do {                                                                                                              \
        char path_[PATH_MAX];                                                                                         \
        int before_ = errno;                                                                                          \
        int counted_ = (condition);                                                                                   \
        errno = before_;                                                                                              \
        if (!counted_) return CALL;                                                                                   \
        enum mode mode_ = arrive(label, path_);                                                                       \
        if (mode_ == FAIL || mode_ == FAIL_FROM) {                                                                    \
            errno = control->error;                                                                                   \
            return -1;                                                                                                \
        }                                                                                                             \
        if (mode_ == SHORT) shorter;                                                                                  \
        errno = before_;                                                                                              \
        kind result_ = CALL;                                                                                          \
        if (mode_ == KILL_AFTER) die();                                                                               \
        if (mode_ == DONE_THEN_FAIL && result_ >= 0) {                                                                \
            errno = control->error;                                                                                   \
            return -1;                                                                                                \
        }                                                                                                             \
        return result_;                                                                                               \
    } while (0)

#define DISTURBED(kind, label, condition, CALL) SHORTENED(kind, label, condition, (void)0, CALL)

static int exists(const char *path) { return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0; }

#define OPEN(name)                                                                                                    \
    int name(const char *path, int flags, ...) {                                                                      \
        mode_t rights = 0;                                                                                            \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                                          \
            va_list rest;                                                                                             \
            va_start(rest, flags);                                                                                    \
            rights = va_arg(rest, mode_t);                                                                            \
            va_end(rest);                                                                                             \
        }                                                                                                             \
        DISTURBED(int, "create", (flags & (O_CREAT | O_TRUNC)) && is_below(AT_FDCWD, path, path_),                    \
                  REAL(name)(path, flags, rights));                                                                   \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                  \
    int name(int dirfd, const char *path, int flags, ...) {                                                           \
        mode_t rights = 0;                                                                                            \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                                          \
            va_list rest;                                                                                             \
            va_start(rest, flags);                                                                                    \
            rights = va_arg(rest, mode_t);                                                                            \
            va_end(rest);                                                                                             \
        }                                                                                                             \
        DISTURBED(int, "create", (flags & (O_CREAT | O_TRUNC)) && is_below(dirfd, path, path_),                       \
                  REAL(name)(dirfd, path, flags, rights));                                                            \
    }
OPENAT(openat)
OPENAT(openat64)

int creat(const char *path, mode_t rights) {
    DISTURBED(int, "create", is_below(AT_FDCWD, path, path_), REAL(creat)(path, rights));
}
int creat64(const char *path, mode_t rights) {
    DISTURBED(int, "create", is_below(AT_FDCWD, path, path_), REAL(creat64)(path, rights));
}

#define WRITE(name, types, shorter, CALL)                                                                             \
    ssize_t name types { SHORTENED(ssize_t, "write", is_file_below(fd, path_), shorter, CALL); }
#define HALF(size) ((size) > 1 ? (size) / 2 : (size))
WRITE(write, (int fd, const void *data, size_t size), size = HALF(size), REAL(write)(fd, data, size))
WRITE(pwrite, (int fd, const void *data, size_t size, off_t at), size = HALF(size), REAL(pwrite)(fd, data, size, at))
WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t at), size = HALF(size),
      REAL(pwrite64)(fd, data, size, at))
WRITE(writev, (int fd, const struct iovec *parts, int count), count = HALF(count), REAL(writev)(fd, parts, count))

int ftruncate(int fd, off_t size) {
    DISTURBED(int, "truncate", is_file_below(fd, path_), REAL(ftruncate)(fd, size));
}
int ftruncate64(int fd, off64_t size) {
    DISTURBED(int, "truncate", is_file_below(fd, path_), REAL(ftruncate64)(fd, size));
}
int fallocate(int fd, int mode, off_t at, off_t size) {
    DISTURBED(int, "truncate", is_file_below(fd, path_), REAL(fallocate)(fd, mode, at, size));
}
int fsync(int fd) { DISTURBED(int, "fsync", is_open_below(fd, path_), REAL(fsync)(fd)); }
int fdatasync(int fd) { DISTURBED(int, "fsync", is_file_below(fd, path_), REAL(fdatasync)(fd)); }
ssize_t copy_file_range(int from, off64_t *from_at, int fd, off64_t *at, size_t size, unsigned flags) {
    DISTURBED(ssize_t, "write", is_file_below(fd, path_),
              REAL(copy_file_range)(from, from_at, fd, at, size, flags));
}

int rename(const char *old, const char *new) {
    DISTURBED(int, "rename", is_below(AT_FDCWD, new, path_), REAL(rename)(old, new));
}
int renameat(int olddir, const char *old, int newdir, const char *new) {
    DISTURBED(int, "rename", is_below(newdir, new, path_), REAL(renameat)(olddir, old, newdir, new));
}
int renameat2(int olddir, const char *old, int newdir, const char *new, unsigned flags) {
    DISTURBED(int, "rename", is_below(newdir, new, path_), REAL(renameat2)(olddir, old, newdir, new, flags));
}
int link(const char *old, const char *new) {
    DISTURBED(int, "link", is_below(AT_FDCWD, new, path_), REAL(link)(old, new));
}
int linkat(int olddir, const char *old, int newdir, const char *new, int flags) {
    DISTURBED(int, "link", is_below(newdir, new, path_), REAL(linkat)(olddir, old, newdir, new, flags));
}
int symlink(const char *old, const char *new) {
    DISTURBED(int, "link", is_below(AT_FDCWD, new, path_), REAL(symlink)(old, new));
}
int unlink(const char *path) {
    DISTURBED(int, "unlink", is_below(AT_FDCWD, path, path_) && exists(path_), REAL(unlink)(path));
}
int unlinkat(int dirfd, const char *path, int flags) {
    DISTURBED(int, "unlink", is_below(dirfd, path, path_) && exists(path_), REAL(unlinkat)(dirfd, path, flags));
}
int remove(const char *path) {
    DISTURBED(int, "unlink", is_below(AT_FDCWD, path, path_) && exists(path_), REAL(remove)(path));
}
int rmdir(const char *path) {
    DISTURBED(int, "rmdir", is_below(AT_FDCWD, path, path_) && exists(path_), REAL(rmdir)(path));
}
int mkdir(const char *path, mode_t rights) {
    DISTURBED(int, "mkdir", is_below(AT_FDCWD, path, path_) && !exists(path_), REAL(mkdir)(path, rights));
}
int mkdirat(int dirfd, const char *path, mode_t rights) {
    DISTURBED(int, "mkdir", is_below(dirfd, path, path_) && !exists(path_), REAL(mkdirat)(dirfd, path, rights));
}
