import os, sys, glob, subprocess, importlib.util
def test_a(tmp_path):
    assert os.path.isabs(os.environ["M"]) and os.path.exists(os.environ["M"])
    assert os.environ["Q"] == "it's"
    s = importlib.util.spec_from_file_location("_toy", os.path.join(os.path.dirname(__file__), "_toy.so"))
    m = importlib.util.module_from_spec(s); s.loader.exec_module(m)
    assert m.add(1, 2) == 3
    try: m.boom()
    except RuntimeError: pass
