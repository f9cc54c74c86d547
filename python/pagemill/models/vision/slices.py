"""Images of any size that come with slices of one size, rows and columns of them."""

from __future__ import annotations

from pagemill.inputs.prepared_media import PreparedMedia


def divided(image: PreparedMedia) -> tuple[list[list[PreparedMedia]], PreparedMedia]:
    """Rows of slices of an image, [blocks, height, width, channels] in patches, and the whole
    image, whose patches, row by row, are the first ones of the last blocks.

    Raises:
        ValueError: it does not have the slices and patches of its grid.
    """
    values = image.values
    if values.ndim != 4 or image.grid is None or 0 in values.shape:
        raise ValueError(
            "an image of this model is patches [patches, channels] with the grid (1, height,"
            " width), or slices [blocks, height, width, channels] with (rows of slices, height and"
            " width of the whole image in patches)"
        )
    rows, *size = image.grid
    blocks, *shape, channels = values.shape
    each = shape[0] * shape[1]
    count = size[0] * size[1]
    slices = blocks - -(-count // each)
    if min(rows, *size, slices) < 1 or slices % rows:
        raise ValueError(
            f"an image of {rows} rows of slices of {shape[0]} x {shape[1]} patches, and {size[0]} x"
            f" {size[1]} behind them, must be whole rows of slices and as many more blocks as the"
            f" whole image fills; got {blocks} blocks"
        )
    columns = slices // rows
    items = [
        PreparedMedia("image", block.reshape(each, channels), (1, shape[0], shape[1]))
        for block in values[:slices]
    ]
    rest = values[slices:].reshape(-1, channels)
    whole = PreparedMedia("image", rest[:count], (1, size[0], size[1]))
    return [items[row * columns :][:columns] for row in range(rows)], whole
