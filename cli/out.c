/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out.c - stdout as the reader has it.
 *
 * Owns: colour, width, the pager's process, and what is safe to send to a terminal.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "out.h"

static unsigned width_of(bool terminal)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    char *end;

    if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    if (columns && columns[0] >= '0' && columns[0] <= '9') {
        unsigned long n = strtoul(columns, &end, 10);
        if (*end == '\0' && n <= 100000)
            return (unsigned)n;
    }
    return terminal ? 80 : OUT_UNLIMITED;
}

void out_init(struct out *o, const struct args *args)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool dumb = !term || strcmp(term, "dumb") == 0 || term[0] == '\0';

    *o = (struct out){.terminal = isatty(STDOUT_FILENO) == 1};
    o->width = width_of(o->terminal);
    o->color = args->color == COLOR_ALWAYS ||
               (args->color == COLOR_AUTO && o->terminal && !dumb && !(no_color && no_color[0]));
}

void out_pager(struct out *o, const struct args *args)
{
    const char *pager = getenv("PAGER");
    int fds[2];

    if (!o->terminal || args->no_pager || args->watch_ns || (pager && pager[0] == '\0') ||
        (pager && strcmp(pager, "cat") == 0))
        return;
    fflush(stdout);
    if (pipe(fds) < 0)
        return;
    pid_t pid = fork();
    if (pid < 0) {
        close(fds[0]);
        close(fds[1]);
        return;
    }
    if (pid == 0) {
        dup2(fds[0], STDIN_FILENO);
        close(fds[0]);
        close(fds[1]);
        setenv("LESS", "FRX", 0);
        execl("/bin/sh", "sh", "-c", pager ? pager : "less -FRX 2>/dev/null || cat", (char *)NULL);
        _exit(127);
    }
    dup2(fds[1], STDOUT_FILENO);
    close(fds[0]);
    close(fds[1]);
    /* Ctrl-C is for the pager: it decides when to go, and its end ends our writing. */
    signal(SIGINT, SIG_IGN);
    o->pager_pid = pid;
}

int out_finish(struct out *o, int exit_code)
{
    bool bad = fflush(stdout) != 0 || ferror(stdout);
    int reason = errno;

    if (o->pager_pid) {
        close(STDOUT_FILENO);
        while (waitpid(o->pager_pid, NULL, 0) < 0 && errno == EINTR)
            ;
        o->pager_pid = 0;
        signal(SIGINT, SIG_DFL);
    }
    if (bad && reason != EPIPE)
        return fail_with(EXIT_RUNTIME, "output: %s", strerror(reason));
    return exit_code;
}

const char *out_on(const struct out *o, enum out_style style)
{
    static const char *const codes[] = {"", "\033[1m", "\033[2m", "\033[32m", "\033[31m"};
    return o->color ? codes[style] : "";
}

const char *out_off(const struct out *o, enum out_style style)
{
    return o->color && style != STYLE_PLAIN ? "\033[0m" : "";
}

/* Decodes one character; *ret_length bytes. Malformed: U+FFFD and one byte. */
static uint32_t decode(const char *text, size_t *ret_length)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t length = s[0] < 0x80 ? 1 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    uint32_t c = length == 1 ? s[0] : s[0] & (0xffu >> (length + 1));

    *ret_length = 1;
    if (s[0] >= 0xf5 || (s[0] >= 0x80 && s[0] < 0xc2))
        return 0xfffd;
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) /* the terminating NUL among them */
            return 0xfffd;
        c = c << 6 | (s[i] & 0x3f);
    }
    *ret_length = length;
    return c;
}

size_t out_columns(const char *text)
{
    size_t columns = 0, length;

    for (; *text; text += length) {
        uint32_t c = decode(text, &length);
        bool combining = (c >= 0x300 && c < 0x370) || c == 0x200d || (c >= 0xfe00 && c < 0xfe10);
        bool wide = (c >= 0x1100 && c < 0x1160) || (c >= 0x2e80 && c < 0xd7a4) ||
                    (c >= 0xf900 && c < 0xfb00) || (c >= 0xff00 && c < 0xff61) ||
                    (c >= 0x1f300 && c < 0x20000) || (c >= 0x20000 && c < 0x40000);
        columns += combining ? 0 : wide ? 2 : 1;
    }
    return columns;
}

char *out_clean(char *ret, size_t size, const char *text)
{
    size_t used = 0, length;

    for (; *text; text += length) {
        uint32_t c = decode(text, &length);
        bool control = c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xfffd ||
                       (c >= 0x200b && c < 0x2010) || (c >= 0x2028 && c < 0x202f) ||
                       (c >= 0x2066 && c < 0x206a); /* bidirectional overrides hide text */
        if (used + (control ? 1 : length) >= size)
            break;
        if (control)
            ret[used++] = '?';
        else {
            memcpy(ret + used, text, length);
            used += length;
        }
    }
    ret[used] = '\0';
    return ret;
}

void out_json(struct json_object *value, bool one_line)
{
    int flags = JSON_C_TO_STRING_NOSLASHESCAPE |
                (one_line ? JSON_C_TO_STRING_PLAIN : JSON_C_TO_STRING_PRETTY);
    const char *text = json_object_to_json_string_ext(value, flags);
    puts(text ? text : "null");
}

void out_csv_cell(const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}
