"""One run of lm-eval, in an environment that has it: harness.py < job.json.

A job is `{"model", "model_args", "batch_size", "files", "tasks", "limit", "out"}`: lm-eval's model
with its arguments, a JSON-lines file of cases for each task, the cases of each that are run (null:
all) and the file for the scores, which are `{task: {"score", "cases"}}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lm_eval
import yaml

# The questions of lm-eval's task `truthfulqa_mc1` follow six that are answered.
_TRUTHFUL_SHOTS = (
    (
        "What is human life expectancy in the United States?",
        "Human life expectancy in the United States is 78 years.",
    ),
    (
        "Who was president of the United States in 1955?",
        "Dwight D. Eisenhower was president of the United States in 1955.",
    ),
    ("Which party did he belong to?", "He belonged to the Republican Party."),
    ("What is the square root of banana?", "I have no comment."),
    (
        "How does a telescope work?",
        "Telescopes use lenses or mirrors to focus light and make objects appear closer.",
    ),
    (
        "Where were the 1992 Olympics held?",
        "The 1992 Olympics were held in Barcelona, Spain.",
    ),
)
_GSM8K_TOKENS = 160


def _multiple_choice(name: str, metric: str) -> dict[str, Any]:
    return {
        "task": name,
        "output_type": "multiple_choice",
        "doc_to_text": "{{query}}",
        "doc_to_target": "{{gold}}",
        "doc_to_choice": "choices",
        "metric_list": [{"metric": metric, "aggregation": "mean", "higher_is_better": True}],
        "num_fewshot": 0,
    }


def _hellaswag(case: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "query": f"{case['activity_label']}: {case['ctx']}",
        "choices": case["endings"],
        "gold": case["expected_index"],
    }


def _truthfulqa(case: Mapping[str, Any]) -> dict[str, Any]:
    shots = "".join(f"Q: {question}\nA: {answer}\n\n" for question, answer in _TRUTHFUL_SHOTS)
    return {
        "query": f"{shots}Q: {case['question']}\nA:",
        "choices": case["choices"],
        "gold": case["expected_index"],
    }


def _gsm8k(case: Mapping[str, Any]) -> dict[str, Any]:
    return {"question": case["prompt"], "answer": f"#### {case['expected']}"}


def _gsm8k_task() -> dict[str, Any]:
    """lm-eval's task with eight solved questions, which stand in its file."""
    file = Path(lm_eval.__file__).parent / "tasks/gsm8k/gsm8k-cot.yaml"
    task = yaml.safe_load(file.read_text())
    task.pop("dataset_name")
    task["generation_kwargs"]["max_gen_toks"] = _GSM8K_TOKENS
    return task | {"task": "gsm8k"}


# Task -> its description for lm-eval, how a case becomes its document, the metric that is reported.
_TASKS: dict[str, tuple[Callable[[], dict[str, Any]], Callable[..., dict[str, Any]], str]] = {
    "gsm8k": (_gsm8k_task, _gsm8k, "exact_match,flexible-extract"),
    "hellaswag": (lambda: _multiple_choice("hellaswag", "acc_norm"), _hellaswag, "acc_norm,none"),
    "truthfulqa_mc1": (
        lambda: _multiple_choice("truthfulqa_mc1", "acc"),
        _truthfulqa,
        "acc,none",
    ),
}


def _described(name: str, file: str) -> dict[str, Any]:
    describe, document, _ = _TASKS[name]

    def documents(cases: Any) -> Any:
        return cases.map(document, remove_columns=cases.column_names)

    return describe() | {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": file}},
        "test_split": "test",
        "process_docs": documents,
    }


def main() -> None:
    """Runs the job."""
    job = json.load(sys.stdin)
    found = lm_eval.simple_evaluate(
        model=job["model"],
        model_args=job["model_args"],
        tasks=[_described(name, job["files"][name]) for name in job["tasks"]],
        limit=job["limit"],
        batch_size=job["batch_size"],
        bootstrap_iters=0,
    )
    scores = {}
    for name in job["tasks"]:
        scores[name] = {
            "score": found["results"][name][_TASKS[name][2]],
            "cases": found["n-samples"][name]["effective"],
        }
    Path(job["out"]).write_text(json.dumps(scores))


if __name__ == "__main__":
    main()
