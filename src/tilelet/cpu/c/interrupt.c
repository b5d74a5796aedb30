/* Run in the thread that receives Ctrl-C. */
#include <signal.h>

#include "rt.h"

static volatile int32_t *volatile interrupts; /* `cancel` flag of the run that Ctrl-C ends */
static struct sigaction before;

/* The previous handler is called as well. */
static void on_interrupt(int number, siginfo_t *info, void *context) {
    volatile int32_t *cancel = interrupts;
    if (cancel) *cancel = 1;
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(number);
}

__attribute__((visibility("default"))) int tl_run_here(const tl_program *program,
                                                       const tl_run_args *args) {
    struct sigaction now;
    if (interrupts || sigaction(SIGINT, NULL, &before)) return tl_run(program, args);
    now = before;
    now.sa_flags |= SA_SIGINFO;
    now.sa_sigaction = on_interrupt;
    interrupts = args->cancel;
    int is_set = sigaction(SIGINT, &now, NULL) == 0;
    int result = tl_run(program, args);
    if (is_set) sigaction(SIGINT, &before, NULL);
    interrupts = NULL;
    return result;
}
