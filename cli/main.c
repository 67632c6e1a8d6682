/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - npumem: one verb, one exit code.
 *
 * Owns: the form of an error line and the exit codes.
 */
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include "cli.h"
#include "out.h"

int fail(int exit_code, const struct error *e)
{
    char what[sizeof(e->what)], fix[sizeof(e->fix)];

    fflush(stdout);
    fprintf(stderr, "npumem: %s", out_clean(what, sizeof(what), e->what));
    if (e->fix[0])
        fprintf(stderr, "; try: %s", out_clean(fix, sizeof(fix), e->fix));
    fputc('\n', stderr);
    return exit_code;
}

int fail_with(int exit_code, const char *format, ...)
{
    struct error e = {0};
    va_list ap;

    va_start(ap, format);
    vsnprintf(e.what, sizeof(e.what), format, ap);
    va_end(ap);
    return fail(exit_code, &e);
}

int exit_code_of(int r)
{
    switch (r) {
    case -ENOTCONN:
        return EXIT_NO_DAEMON;
    case -EACCES:
    case -EPERM:
        return EXIT_NOT_PERMITTED;
    case -ESRCH:
        return EXIT_NOT_FOUND;
    case -EINVAL:
        return EXIT_USAGE;
    default:
        return r < 0 ? EXIT_RUNTIME : EXIT_DONE;
    }
}

int main(int argc, char **argv)
{
    struct error error = {0};
    struct args args;

    /* A parent may have ignored it; `npumem ... | head` is to end quietly. */
    signal(SIGPIPE, SIG_DFL);
    setlocale(LC_TIME, "");
    int r = args_parse(argc, argv, &args, &error);
    if (r < 0)
        return fail(EXIT_USAGE, &error);
    if (args.version)
        return verb_version(&args);
    if (args.help && args.verb)
        help_verb(args.verb);
    else if (args.help || !args.verb)
        help_overview();
    else
        return args.verb->run(&args);
    if (args.help)
        return EXIT_DONE;
    error_set(&error, EINVAL, "no verb was given");
    error_fix(&error, 0, "npumem breakdown");
    return fail(EXIT_USAGE, &error);
}
