"""The scales of a recipe, and values that depend on the scale."""

SCALES = ("paper", "medium", "small", "smoke")
# The scales of a recipe that lists none.
USUAL = ("paper", "small", "smoke")
# Text that a figure's title adds at scales with other data and networks.
STANDS_FOR = {
    "medium": "digits of MNIST and narrow networks under these names",
    "small": "in small: digits and small networks under these names",
    "smoke": "a few digits, to see that it runs",
}
# These scales take the value of `small` where a table has none for them.
LIKE_SMALL = ("medium", "smoke")


def of(table, where, default=USUAL):
    """Returns the scales that a table lists under `scales`.

    Args:
        table: The table, a whole recipe or one `[[cells]]`.
        where: Place of the table, for error messages.
        default: The scales of a table that lists none.
    """
    scales = table.get("scales", default)
    if not isinstance(scales, list | tuple) or not set(scales) <= set(SCALES):
        raise SystemExit(
            f"{where}: `scales` must list some of {', '.join(SCALES)}. "
            f"Received: scales={scales}"
        )
    return scales


def value_at(value, scale):
    """Returns the value of a setting at a scale.

    Args:
        value: The value, or a table with a value for each scale. If a table
            lacks `medium` or `smoke`, the value of `small` applies.
        scale: One of `SCALES`.
    """
    if not (isinstance(value, dict) and value.keys() <= set(SCALES)):
        return value
    if scale in LIKE_SMALL and scale not in value:
        scale = "small"
    return value[scale]
