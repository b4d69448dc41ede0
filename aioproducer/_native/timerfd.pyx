# cython: language_level=3
"""Timers of the Linux kernel, which are as fine as its clock; those of event loops have a grain of a millisecond."""

from cpython.exc cimport PyErr_SetFromErrno


cdef extern from *:
    """
    #include <errno.h>
    #ifdef __linux__
    #include <sys/timerfd.h>
    #include <time.h>

    static int kernel_timer_open(void) {
        return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    }

    static int kernel_timer_set(int descriptor, double seconds) {
        struct itimerspec at = {{0, 0}, {0, 0}};
        if (!(seconds >= 0.0 && seconds <= 1e9)) {  /* nor a number that is none, which has no value as an integer */
            errno = EINVAL;
            return -1;
        }
        at.it_value.tv_sec = (time_t)seconds;
        at.it_value.tv_nsec = (long)((seconds - (double)at.it_value.tv_sec) * 1e9);
        return timerfd_settime(descriptor, 0, &at, NULL);
    }
    #else
    static int kernel_timer_open(void) { errno = ENOSYS; return -1; }
    static int kernel_timer_set(int descriptor, double seconds) {
        (void)descriptor; (void)seconds; errno = ENOSYS; return -1;
    }
    #endif
    """
    int kernel_timer_open()
    int kernel_timer_set(int descriptor, double seconds)


def open_timer():
    cdef int descriptor = kernel_timer_open()
    if descriptor < 0:
        PyErr_SetFromErrno(OSError)
    return descriptor


def set_timer(int descriptor, double seconds):
    if kernel_timer_set(descriptor, seconds) < 0:
        PyErr_SetFromErrno(OSError)
