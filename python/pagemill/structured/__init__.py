"""What an output has to be: grammars, and the tokens that may come next by them.

    grammar = json_schema({"type": "object", "properties": {"age": {"type": "integer"}}})
    compiler.prepare(grammar)                  # raises GrammarError
    llm.generate(prompt, grammar=grammar)

A grammar is text, so that it crosses to the engine's process; there a `GrammarCompiler` makes the
matchers of outputs from it.
"""
