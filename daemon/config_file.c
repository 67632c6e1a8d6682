/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: reading the INI subset. Must not: know any setting.
 * Invariant: on error the caller's settings are unchanged: a file is read into a copy first.
 */
#include "config.h"

#include <ctype.h>
#include <dirent.h>
#include <string.h>

#include "cleanup.h"

#define LINE_BYTES 1024 /* a path of 255 and its key fit four times */

static char *trim(char *s)
{
    char *end;

    while (isspace((unsigned char)*s))
        s++;
    end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return s;
}

/* [name] -> section; -EINVAL. */
static int section_line(char *line, char *section, size_t size, const char *origin,
                        struct error *reterr)
{
    size_t length = strlen(line);

    if (line[length - 1] != ']')
        return error_set(reterr, EINVAL, "%s: section without ]: \"%.64s\"", origin, line);
    line[length - 1] = '\0';
    line = trim(line + 1);
    if (!*line || strlen(line) >= size)
        return error_set(reterr, EINVAL, "%s: bad section name \"%.64s\"", origin, line);
    memcpy(section, line, strlen(line) + 1);
    return 0;
}

static int config_line(struct config *config, char *line, char *section, size_t section_size,
                       const char *origin, struct error *reterr)
{
    char name[128];
    char *value;

    line = trim(line);
    if (*line == '\0' || *line == '#' || *line == ';')
        return 0;
    if (*line == '[')
        return section_line(line, section, section_size, origin, reterr);
    value = strchr(line, '=');
    if (!value)
        return error_set(reterr, EINVAL, "%s: neither [section] nor key = value: \"%.64s\"", origin,
                         line);
    *value++ = '\0';
    line = trim(line);
    value = trim(value);
    if (!section[0])
        return error_set(reterr, EINVAL, "%s: \"%.64s\" stands before the first [section]", origin,
                         line);
    if ((size_t)snprintf(name, sizeof(name), "%s.%s", section, line) >= sizeof(name))
        return error_set(reterr, EINVAL, "%s: key is too long", origin);
    return config_set(config, name, value, origin, reterr);
}

int config_read_file(struct config *config, const char *path, struct error *reterr)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    struct config next = *config;
    char line[LINE_BYTES], section[64] = "", origin[160];

    if (!f) {
        int code = errno;
        return error_set(reterr, code, "%.150s: %s", path, strerror(code));
    }
    for (unsigned number = 1; fgets(line, sizeof(line), f); number++) {
        size_t length = strlen(line);
        int r;

        snprintf(origin, sizeof(origin), "%.140s:%u", path, number);
        if (length == sizeof(line) - 1 && line[length - 1] != '\n')
            return error_set(reterr, EINVAL, "%s: line is longer than %d bytes", origin,
                             LINE_BYTES - 2);
        if (length == 0 || (line[length - 1] != '\n' && !feof(f)))
            return error_set(reterr, EINVAL, "%s: holds a NUL byte: not a text file", origin);
        r = config_line(&next, line, section, sizeof(section), origin, reterr);
        if (r < 0)
            return r == -ENOENT ? -EINVAL : r;
    }
    if (ferror(f)) {
        int code = errno ? errno : EIO;
        return error_set(reterr, code, "%.150s: %s", path, strerror(code));
    }
    *config = next;
    return 0;
}

static int conf_filter(const struct dirent *d)
{
    size_t length = strlen(d->d_name);

    return d->d_name[0] != '.' && length > 5 && strcmp(d->d_name + length - 5, ".conf") == 0;
}

/* Byte order, so that 10-x.conf comes before 20-y.conf in every locale. */
static int conf_order(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int config_read_dir(struct config *config, const char *dir, struct error *reterr)
{
    struct config next = *config;
    struct dirent **names = NULL;
    char path[4096];
    int count, r;

    snprintf(path, sizeof(path), "%s/npumemd.conf", dir);
    r = config_read_file(&next, path, reterr);
    if (r < 0 && r != -ENOENT)
        return r;
    snprintf(path, sizeof(path), "%s/npumemd.conf.d", dir);
    count = scandir(path, &names, conf_filter, conf_order);
    if (count < 0 && errno != ENOENT) {
        int code = errno;
        return error_set(reterr, code, "%.150s: %s", path, strerror(code));
    }
    r = 0;
    for (int i = 0; i < count; i++) {
        if (r == 0) {
            snprintf(path, sizeof(path), "%s/npumemd.conf.d/%s", dir, names[i]->d_name);
            r = config_read_file(&next, path, reterr);
        }
        free(names[i]);
    }
    free(names);
    if (r == 0)
        *config = next;
    return r;
}
