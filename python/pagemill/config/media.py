"""Options of media in requests: images, audio and videos."""

import re
from dataclasses import dataclass
from typing import Any, Final, cast

from pagemill.config.fields import ConfigError, Range, check, option
from pagemill.config.other_servers import check_url

_DOMAIN = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?")
MEDIA_KINDS: Final = ("image", "audio", "video")
_MOST_ITEMS = 1024
_MOST_FRAMES = 768  # those that models are trained with
_MOST_FPS = 60


@dataclass(frozen=True, slots=True)
class MediaConfig:
    """Images, audio and videos in requests: where they may come from, and their limits."""

    allowed_media_domains: tuple[str, ...] = option(
        (),
        "Host from which media are fetched that requests name by an http or https URL; may be"
        " repeated, or a list with commas. *.example.com is every name below example.com,"
        " example.com:8443 allows that port instead of 80 and 443. Addresses that are not public"
        " are refused, and so are redirects. Default: none; media come as data: URLs.",
    )
    limit_mm_per_prompt: dict[str, int] = option(
        {},
        'Maximum number of images, of audio parts and of videos in a request, as JSON: {"image": 4,'
        ' "audio": 1, "video": 1}. 0 = they are refused, and an encoder that reads nothing else is'
        " not loaded. Default: 16.",
    )
    max_image_bytes: int = option(
        20 * 2**20,
        "Largest image, as it is sent or fetched; a larger one is refused.",
        unit="bytes",
        allowed=Range(1024, 2**30),
    )
    max_image_pixels: int = option(
        2**25,
        "Maximum number of pixels of an image, or of a frame of a video, before it is resized for"
        " the model; one with more is refused before it is decoded.",
        unit="pixels",
        allowed=Range(1024, 2**27),
    )
    max_audio_bytes: int = option(
        25 * 2**20,
        "Largest audio file, as it is sent or fetched; a larger one is refused.",
        unit="bytes",
        allowed=Range(1024, 2**30),
    )
    max_audio_seconds: float = option(
        1200.0,
        "Longest audio file; a longer one is refused, by its header before it is decoded, or as"
        " soon as more of it has been decoded.",
        unit="s",
        allowed=Range(1, 7200),
    )
    max_video_bytes: int = option(
        64 * 2**20,
        "Largest video file, as it is sent or fetched; a larger one is refused.",
        unit="bytes",
        allowed=Range(1024, 2**30),
    )
    max_video_seconds: float = option(
        600.0,
        "Longest video, by its header; a longer one is refused before it is decoded.",
        unit="s",
        allowed=Range(1, 7200),
    )
    media_fetch_timeout: float = option(
        5.0,
        "Time limit for fetching a file, from its URL to its last byte.",
        unit="s",
        allowed=Range(0.1, 600),
    )

    encoder_urls: tuple[str, ...] = option(
        (),
        "URL of a server with --mm-encoder-only of the same model, such as http://10.0.0.2:8000;"
        " may be repeated, or a list with commas. It encodes the images and audio of requests, and"
        " this server loads no encoder and decodes no files. Equal files go to the same one, and"
        " if it fails, to the next. Default: none.",
    )
    encoder_timeout: float = option(
        30.0,
        "Time limit for the answer of one of --encoder-urls.",
        unit="s",
        allowed=Range(0.1, 3600),
    )
    encoder_key_file: str | None = option(
        None, "File with the API key that --encoder-urls are sent. Default: none."
    )
    mm_processor_kwargs: dict[str, Any] = option(
        {},
        "Settings of the model's image processor in place of those of its preprocessor_config.json,"
        ' as JSON: {"max_pixels": 200704}. One that the processor does not read is refused.',
    )
    media_io_kwargs: dict[str, Any] = option(
        {},
        "How files are decoded, as JSON: the color behind what is transparent in images,"
        ' {"image": {"rgba_background_color": [0, 0, 0]}}, white by default; and how many frames of'
        ' a video are read, {"video": {"num_frames": 32, "fps": 2}}: at most num_frames, 32 by'
        " default, evenly from the first to the last, and at most fps of each second, if it is"
        " set.",
    )
    mm_processor_cache_gb: float = option(
        1.0,
        "Memory for media that were prepared for the model, so that a chat's next turn, and a"
        " part with the `uuid` of an earlier one, need not read them again. Each API process has as"
        " much. 0 = none are kept.",
        unit="GiB",
        allowed=Range(0, 4096),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
          ConfigError: a domain or a server is not one, a limit is of something unknown or out of
            range, or `media_io_kwargs` has something else than a color.
        """
        check(self)
        for domain in self.domains:
            if not _DOMAIN.fullmatch(domain):
                raise ConfigError(
                    f"--allowed-media-domains: {domain!r} is not a host; write example.com,"
                    " *.example.com or example.com:8443"
                )
        for url in self.encoder_servers:
            check_url("--encoder-urls", url)
        if len(set(self.encoder_servers)) < len(self.encoder_servers):
            raise ConfigError("--encoder-urls: the same server is named twice")
        for name, limit in self.limit_mm_per_prompt.items():
            if name not in MEDIA_KINDS:
                raise ConfigError(
                    f"--limit-mm-per-prompt: {name!r} is not known; write"
                    ' \'{"image": 4, "audio": 1, "video": 1}\''
                )
            if type(limit) is not int or not 0 <= limit <= _MOST_ITEMS:
                raise ConfigError(
                    f"--limit-mm-per-prompt: {name} must be a number from 0 to {_MOST_ITEMS}"
                )

        if not _are_io_options(self.media_io_kwargs):
            raise ConfigError(
                "--media-io-kwargs: write"
                ' \'{"image": {"rgba_background_color": [RED, GREEN, BLUE]}}\', from 0 to 255, or'
                f' \'{{"video": {{"num_frames": N, "fps": F}}}}\', N from 1 to {_MOST_FRAMES}, F'
                f" above 0 and at most {_MOST_FPS}"
            )

    @property
    def background(self) -> tuple[int, int, int]:
        """The color behind what is transparent: red, green and blue."""
        image = self.media_io_kwargs.get("image", {})
        red, green, blue = image.get("rgba_background_color", (255, 255, 255))
        return red, green, blue

    @property
    def video_num_frames(self) -> int:
        """Frames of a video that are read at most."""
        return self.media_io_kwargs.get("video", {}).get("num_frames", 32)

    @property
    def video_fps(self) -> float:
        """Frames of each second of a video that are read at most; 0: it does not matter."""
        return self.media_io_kwargs.get("video", {}).get("fps", 0.0)

    @property
    def domains(self) -> tuple[str, ...]:
        """Each of `allowed_media_domains`, in lower case."""
        return tuple(each.lower() for each in _listed(self.allowed_media_domains))

    @property
    def encoder_servers(self) -> tuple[str, ...]:
        """Each of `encoder_urls`, without a slash at its end."""
        return tuple(each.rstrip("/") for each in _listed(self.encoder_urls))

    @property
    def cache_bytes(self) -> int:
        """Of media that were prepared."""
        return int(self.mm_processor_cache_gb * 2**30)

    def max_items(self, kind: str) -> int:
        """Of a prompt: images, audio, or videos."""
        return self.limit_mm_per_prompt.get(kind, 16)

    @property
    def refused_kinds(self) -> frozenset[str]:
        """Those of which a prompt may have none."""
        return frozenset(kind for kind in MEDIA_KINDS if not self.max_items(kind))


def _listed(values: tuple[str, ...]) -> list[str]:
    """Values of an option that may be repeated, or lists with commas."""
    return list(filter(None, map(str.strip, ",".join(values).split(","))))


def _are_io_options(options: dict[str, Any]) -> bool:
    image, video = (_fields(options, kind) for kind in ("image", "video"))
    if options.keys() - {"image", "video"} or image is None or video is None:
        return False
    if image.keys() - {"rgba_background_color"} or video.keys() - {"num_frames", "fps"}:
        return False
    count, fps = video.get("num_frames", 1), video.get("fps", 1)
    if type(count) is not int or not 1 <= count <= _MOST_FRAMES:
        return False
    if type(fps) not in (int, float) or not 0 < cast("float", fps) <= _MOST_FPS:
        return False
    color = image.get("rgba_background_color", [0, 0, 0])
    if not isinstance(color, list | tuple):
        return False
    parts = cast("list[object]", color)
    return len(parts) == 3 and all(type(part) is int and 0 <= part <= 255 for part in parts)


def _fields(options: dict[str, Any], kind: str) -> dict[str, object] | None:
    fields: object = options.get(kind, {})
    return cast("dict[str, object]", fields) if isinstance(fields, dict) else None
