"""Options of media in requests."""

import pytest

from pagemill.config import ConfigError, MediaConfig, build


def test_domains_are_a_list_or_several():
    config = build(MediaConfig, {"allowed_media_domains": ["A.example, *.b.example", "c:8443"]})
    assert config.domains == ("a.example", "*.b.example", "c:8443")
    assert MediaConfig().domains == ()


def test_images_are_sixteen_unless_said():
    assert MediaConfig().max_items("image") == 16
    none = build(MediaConfig, {"limit_mm_per_prompt": '{"image": 0}'})
    assert none.max_items("image") == 0 and none.refused_kinds == {"image"}


def test_what_is_transparent_is_white_unless_said():
    assert MediaConfig().background == (255, 255, 255)
    options = {"image": {"rgba_background_color": [1, 2, 3]}}
    assert build(MediaConfig, {"media_io_kwargs": options}).background == (1, 2, 3)


def test_thirty_two_frames_of_a_video_unless_said():
    assert (MediaConfig().video_num_frames, MediaConfig().video_fps) == (32, 0)
    config = build(MediaConfig, {"media_io_kwargs": '{"video": {"num_frames": 8, "fps": 0.5}}'})
    assert (config.video_num_frames, config.video_fps) == (8, 0.5)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("allowed_media_domains", "https://a.example", "not a host"),
        ("allowed_media_domains", "*", "not a host"),
        ("allowed_media_domains", "a.example/path", "not a host"),
        ("limit_mm_per_prompt", '{"smell": 1}', "'smell' is not known"),
        ("limit_mm_per_prompt", '{"image": -1}', "from 0 to 1024"),
        ("limit_mm_per_prompt", '{"image": "4"}', "from 0 to 1024"),
        ("max_image_pixels", "10", "1024"),
        ("media_io_kwargs", '{"audio": {}}', "rgba_background_color"),
        ("media_io_kwargs", '{"video": 1}', "num_frames"),
        ("media_io_kwargs", '{"video": {"num_frames": 0}}', "N from 1 to 768"),
        ("media_io_kwargs", '{"video": {"num_frames": true}}', "num_frames"),
        ("media_io_kwargs", '{"video": {"fps": 0}}', "F above 0 and at most 60"),
        ("media_io_kwargs", '{"video": {"seconds": 1}}', "num_frames"),
        ("media_io_kwargs", '{"image": {"image_mode": "L"}}', "rgba_background_color"),
        ("media_io_kwargs", '{"image": {"rgba_background_color": [0, 0, 256]}}', "0 to 255"),
        ("media_io_kwargs", '{"image": {"rgba_background_color": "black"}}', "0 to 255"),
    ],
)
def test_values_that_are_refused(name: str, value: str, why: str):
    with pytest.raises(ConfigError, match=why):
        build(MediaConfig, {name: value})
