/* Preloaded: the clock of this process is an hour ahead, as that of a machine without NTP. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

#define AHEAD_S 3600

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*theirs)(clockid_t, struct timespec *);
    if (theirs == NULL)
        theirs = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = theirs(clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += AHEAD_S;
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec precise;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *now)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now != NULL)
        *now = precise.tv_sec;
    return precise.tv_sec;
}
