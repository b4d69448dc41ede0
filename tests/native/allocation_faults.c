/* Makes one allocation of the native modules fail: preloaded before the C library's own malloc.

   Only calls that come from a module of aioproducer/_native are counted, so that Python and the test go on. What
   Python allocates for those modules is made to fail by _testcapi.set_nomemory instead. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void __libc_free(void *block);

static long until_failure = -1; /* allocations that still succeed; -1: all */
static long counted = 0;
static long alive = 0; /* blocks that were allocated here and not freed; realloc of NULL counts as malloc */
static __thread int asking = 0;

static int is_ours(void *caller) {
    Dl_info where;
    int found;
    if (asking) return 0;
    asking = 1; /* dladdr may allocate */
    found = dladdr(caller, &where) && where.dli_fname && strstr(where.dli_fname, "/_native/");
    asking = 0;
    return found;
}

static int must_fail(void) {
    counted++;
    return until_failure >= 0 && until_failure-- == 0;
}

void *malloc(size_t size) {
    void *block;
    if (!is_ours(__builtin_return_address(0))) return __libc_malloc(size);
    if (must_fail()) return NULL;
    block = __libc_malloc(size);
    if (block) alive++;
    return block;
}

void *realloc(void *block, size_t size) {
    void *grown;
    if (!is_ours(__builtin_return_address(0))) return __libc_realloc(block, size);
    if (must_fail()) return NULL;
    grown = __libc_realloc(block, size);
    if (grown && !block) alive++;
    return grown;
}

void free(void *block) {
    if (block && is_ours(__builtin_return_address(0))) alive--;
    __libc_free(block);
}

void allocation_faults_fail_at(long number) { until_failure = number; }
long allocation_faults_counted(void) { return counted; }
long allocation_faults_alive(void) { return alive; }
