// Reads a JSON list of texts from standard input, and prints the list of their tokens (o200k).
const { encode } = require("gpt-tokenizer/encoding/o200k_base");
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map((text) => encode(text).length)));
