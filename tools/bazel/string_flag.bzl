"""A string build setting with a closed set of values."""

def _string_flag_impl(ctx):
    value = ctx.build_setting_value
    if value not in ctx.attr.values:
        fail("{} must be one of {}, not '{}'".format(ctx.label, ctx.attr.values, value))
    return [config_common.FeatureFlagInfo(value = value)]

string_flag = rule(
    implementation = _string_flag_impl,
    build_setting = config.string(flag = True),
    attrs = {"values": attr.string_list(mandatory = True)},
)
