/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: org.varlink.service, the introspection that every varlink service offers.
 * Source: https://varlink.org/Service (method and error names, reply fields).
 */
#include "api_internal.h"

#include <string.h>

#include "embedded.h"
#include "json_write.h"

static const char service_interface[] =
    "# The Varlink service interface: what is offered here.\n"
    "interface org.varlink.service\n"
    "\n"
    "# Who this is and which interfaces it has.\n"
    "method GetInfo() -> (\n"
    "  vendor: string,\n"
    "  product: string,\n"
    "  version: string,\n"
    "  url: string,\n"
    "  interfaces: []string\n"
    ")\n"
    "\n"
    "# The description of one interface.\n"
    "method GetInterfaceDescription(interface: string) -> (description: string)\n"
    "\n"
    "error InterfaceNotFound (interface: string)\n"
    "error MethodNotFound (method: string)\n"
    "error MethodNotImplemented (method: string)\n"
    "error InvalidParameter (parameter: string)\n"
    "error PermissionDenied ()\n"
    "error ExpectedMore ()\n";

static int get_info(struct api_call *call)
{
    struct json j = {0};
    int r = api_params_done(call);

    if (r < 0)
        return r;
    json_object(&j);
    json_kstr(&j, "vendor", "npumem");
    json_kstr(&j, "product", "npumemd");
    json_kstr(&j, "version", NPUMEM_VERSION);
    json_kstr(&j, "url", "");
    json_karray(&j, "interfaces");
    json_str(&j, "org.varlink.service");
    json_str(&j, API_INTERFACE);
    json_end(&j);
    json_end(&j);
    r = api_reply_json(call, &j);
    json_done(&j);
    return r;
}

static int get_description(struct api_call *call)
{
    const char *name = NULL, *text = NULL;
    struct json j = {0};
    int r = api_param_str(call, "interface", &name);

    if (r < 0 || (r = api_params_done(call)) < 0)
        return r;
    if (!name)
        return api_error_named(call, "org.varlink.service.InvalidParameter", "parameter",
                               "interface");
    if (strcmp(name, API_INTERFACE) == 0)
        text = embedded_control_interface;
    else if (strcmp(name, "org.varlink.service") == 0)
        text = service_interface;
    if (!text)
        return api_error_named(call, "org.varlink.service.InterfaceNotFound", "interface", name);
    json_object(&j);
    json_kstr(&j, "description", text);
    json_end(&j);
    r = api_reply_json(call, &j);
    json_done(&j);
    return r;
}

int api_service_call(struct api_call *call, const char *method)
{
    char full[128];

    if (strcmp(method, "GetInfo") == 0)
        return get_info(call);
    if (strcmp(method, "GetInterfaceDescription") == 0)
        return get_description(call);
    snprintf(full, sizeof(full), "org.varlink.service.%.64s", method);
    return api_error_named(call, "org.varlink.service.MethodNotFound", "method", full);
}
