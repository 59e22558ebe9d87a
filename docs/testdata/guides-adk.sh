PATH=$INTEROP/adk/.venv/bin:$PATH
