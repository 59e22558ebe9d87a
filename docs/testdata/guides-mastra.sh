ln -sfn "$INTEROP/mastra/node_modules" node_modules
