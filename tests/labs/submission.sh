#!/bin/sh
# A synthetic student's work, for the tests of reports: lab 03 done, graded and plotted by a student who attacks the page, lab 02 hardly begun.
# usage: tests/labs/submission.sh FOLDER BUILD     makes FOLDER/code, FOLDER/labs (the files of make lab and make grade) and FOLDER/build, which
#                                                  stands for BUILD
set -eu
to=$1 build=$(realpath "$2")
ring=common/comm/allreduce_ring.c
mkdir -p "$to/code/labs/03-allreduce" "$to/code/labs/02-samples" "$to/code/common/comm" "$to/labs/03" "$to/labs/02" "$to/build/results"
ln -sf "$build/course_report" "$to/build/course_report"

long=$(printf '%0300d' 0 | tr 0 w) # a word that is wider than any page
{
    echo '# Before the first run'
    echo 'ring-bytes: 3,670,016, since every rank sends 2 n (N-1)/N and receives as much'
    echo 'naive-bytes: <script>hacked = 1</script><img src=x onerror="hacked = 2"> & "quoted" '"$long"
    printf 'tree-or-ring: tree; \377\376 \342\200\256edoc\n'
    echo 'I had not thought of *receiving*: </table></section><iframe src="http://192.0.2.1/"></iframe>'
} >"$to/code/labs/03-allreduce/predict.txt"
printf 'ring-bytes\t3670016\nnaive-bytes\t14680064\ntree-or-ring\ttree\n' >"$to/labs/03/results"
echo 'chunks: 3 3 2 1' >"$to/code/labs/02-samples/predict.txt"

cat >"$to/code/labs/03-allreduce/answers.md" <<END
> 1. In which step does rank 2 of 4 overwrite the chunk?

In step **4**, see \`ls_comm_await_step\`: <b onclick="hacked = 3">bold</b> [a link](javascript:hacked=4).

- first, 2 * 3 * 4
- second

1. one
2. two

> 2. Why does anybody use a ring?

> 3. Which two runs can differ?

\`\`\`c
</code></pre><script>hacked = 5</script>
int $long;
\`\`\`

| ranks | bytes |
|---|---|
| 2 | 10 |

环形 all-reduce 每个 rank 发送 2(N-1)/N 份数据。 $long
END

cp "$ring" "$to/code/$ring"
{
    echo '/* --- looks like a head of a diff'
    echo '</span></code></pre><script>hacked = 6</script> */'
    echo "int $long;"
} >>"$to/code/$ring"

cat >"$to/labs/03/grade.json" <<END
{"checks": [
 {"check": "ring-order", "points": 4, "of": 4, "verdict": "held", "invariant": "ring: it ends", "why": ""},
 {"check": "ring-sum", "points": 0, "of": 5, "verdict": "broken", "invariant": "ring: every rank ends with the sum",
  "why": "N = 3: rank 0's sum: expected 6, got <script>hacked = 7</script> $long"},
 {"check": "ring-count", "points": 0, "of": 3, "verdict": "not run", "invariant": "ring: as many messages as the formula says", "why": "an earlier check hung",
  "why_zh": "前面有一项检查超时"}],
 "lab": "03", "points": 4, "of": 12, "seed": 77, "nothing_written": false}
END

# Gnuplot's output, and malicious content: each attack in a picture of its own.
cat >"$to/labs/03/bytes.svg" <<'END'
<?xml version="1.0" encoding="utf-8" standalone="no"?>
<svg width="900" height="300" viewBox="0 0 900 300" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">
<title>Gnuplot</title><desc>Produced by GNUPLOT 5.4 patchlevel 4 </desc>
<defs><circle id='gpPt6' r='0.5' stroke='currentColor'/></defs>
<rect x="10" y="10" width="880" height="280" fill="#f3f7fb" stroke="black"/>
<path d="M90,250 L800,60" fill="none" stroke="#0072B2" stroke-width="3"/>
<use xlink:href='#gpPt6' transform='translate(800,60) scale(12)' color='#D55E00'/>
<g font-family="DejaVu Sans" font-size="20"><text x="100" y="50"><tspan>measured on this machine &amp; &lt;others&gt;</tspan></text></g>
</svg>
END
number=0
while read -r attack; do
    number=$((number + 1))
    printf '<svg width="900" height="300" %s</svg>\n' "$attack" >"$to/labs/03/attack-$number.svg"
done <<'END'
onload="hacked = 8">
><script>hacked = 9</script>
><style>body { display: none } @import "http://192.0.2.1/x.css";</style>
><foreignObject width="100" height="100"><body xmlns="http://www.w3.org/1999/xhtml" onload="hacked = 10">foreign words</body></foreignObject>
><image href="http://192.0.2.1/x.png" width="10" height="10"/>
><a href="javascript:hacked=11"><text>linked words</text></a>
><rect x="10" y="10" width="880" height="280" onclick="hacked = 12"/>
><rect x="10" y="10" width="880" height="280" style="background:url(http://192.0.2.1/y)"/>
><path d="M90,250 L800,60" stroke="url(http://192.0.2.1/#z)"/>
><path onmouseover="alert(12)" d="M90,250 L800,60"/>
><use href="http://192.0.2.1/u.svg#p"/>
><image href="data:image/svg+xml;base64,PHN2Zy8+"/>
END
printf '<svg width="10" height="10"><g>half of a picture' >"$to/labs/03/half.svg"
cat >"$to/build/results/speedup.svg" <<'END'
<svg width="600" height="200" xmlns="http://www.w3.org/2000/svg"><desc>Produced by GNUPLOT 5.4</desc>
<text x="20" y="40" font-size="20">replayed on dgx1-v100 (figures from its file)</text><path id="gpPt6" d="M20,180 L580,60" stroke="#D55E00"/></svg>
END
