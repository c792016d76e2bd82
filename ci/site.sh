#!/bin/bash
# Builds a site of the guides, the results, the contract, the programs and the manual, and checks its links.
#
#     ci/site.sh [DIR]        default: target/site
#
# It needs pandoc, and mandoc for the pages of the manual. No network: links to other sites are listed in
# DIR/external-links.txt. Nothing of the site is in the repository.
. "$(dirname "$0")/lib.sh"
out=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/site}")
if ! command -v pandoc > /dev/null; then
    echo "skipped: pandoc is not installed: no site is built"
    exit 0
fi
say "site"
rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mapfile -t documents < <(git ls-files --cached --others --exclude-standard '*.md' | grep -v -e '^crates/' -e '^results/')

# The first heading of a page.
title_of() { sed -n 's/^# //p' "$1" | head -n 1; }

listed() { awk -v page="$1" '$1 == page { found = 1 } END { exit !found }' ci/site/pages.txt; }

# A list of links for a page whose way to the root is $1.
navigation() { # root
    local line page target title
    while IFS= read -r line; do
        case $line in
            '#'* | '') ;;
            *.md\ *)
                page=${line%% *}
                target=${page%.md}.html
                [ "$page" != README.md ] || target=index.html
                title=${line#* }
                echo "<li><a href=\"$1$target\">${title#"${title%%[! ]*}"}</a></li>"
                ;;
            *) echo "</ul><p>$line</p><ul>" ;;
        esac
    done < "$work/pages.txt"
}

render() { # from format, file, page below $out, title, options
    local from=$1 file=$2 page=$3 title=$4 root='' part
    shift 4
    part=$(dirname "$page")
    while [ "$part" != . ]; do root=../$root part=$(dirname "$part"); done
    mkdir -p "$out/$(dirname "$page")"
    local nav
    nav=$(navigation "$root")
    nav="${nav#"</ul>"}</ul>"
    pandoc --from "$from" --to html5 --template ci/site/template.html --lua-filter ci/site/links.lua \
        --metadata pagetitle="$title" --variable root="$root" --variable nav="$nav" \
        --output "$out/$page" "$@" "$file"
}

cp ci/site/pages.txt "$work/pages.txt"
for page in "${documents[@]}"; do
    case $page in
        docs/*) listed "$page" || echo "$page $(title_of "$page")" ;;
    esac
done > "$work/more"
if [ -s "$work/more" ]; then
    { echo More; cat "$work/more"; } >> "$work/pages.txt"
fi
cp ci/site/site.css "$out"

for page in "${documents[@]}"; do
    to=${page%.md}.html
    [ "$page" != README.md ] || to=index.html
    render gfm+gfm_auto_identifiers "$page" "$to" "$(title_of "$page")"
done
# Links to README.md lead to README.html.
cp "$out/index.html" "$out/README.html"
for page in "$out"/*/README.html "$out"/*/*/README.html; do
    [ ! -f "$page" ] || cp "$page" "$(dirname "$page")/index.html"
done

# Pictures, results, licences, and what the documents link to as source.
git ls-files docs | grep -E '\.(svg|json)$' | while read -r picture; do cp "$picture" "$out/$picture"; done
for licence in LICENSE-*; do
    { echo '```'; cat "$licence"; echo '```'; } > "$work/text.md"
    render gfm "$work/text.md" "$licence.html" "$licence"
done
source_page() { # file
    local kind=${1##*.}
    case $kind in rs) kind=rust ;; h | hpp) kind=cpp ;; sh) kind=bash ;; esac
    { echo "# \`$1\`"; echo; echo "\`\`\`$kind"; cat "$1"; echo '```'; } > "$work/text.md"
    render gfm "$work/text.md" "$1.html" "$1"
}
folder_page() { # folder
    {
        echo "# $1"
        echo
        for file in "$1"/*; do
            [ "$file" = "$1/README.md" ] || echo "- [$(basename "$file")]($(basename "$file"))"
        done
    } > "$work/text.md"
    render gfm "$work/text.md" "$1/index.html" "$1"
}
git ls-files --cached --others --exclude-standard examples | grep -E '\.(rs|c|cpp|sh|toml)$' > "$work/sources"
# What is linked to, beside the examples.
grep -ohE '\]\([^)# ]+\.(rs|c|cpp|h|hpp|sh|toml)\)' "${documents[@]}" | sed 's/^](//; s/)$//; s,^\(\.\./\)*,,' \
    | sort -u | while read -r file; do [ ! -f "$file" ] || echo "$file"; done >> "$work/sources"
sort -u "$work/sources" | while read -r file; do source_page "$file"; done
find examples -type d | while read -r folder; do
    [ -f "$out/$folder/index.html" ] || folder_page "$folder"
done

if command -v mandoc > /dev/null; then
    { echo '# The manual'; echo; echo '| page | |'; echo '| --- | --- |'; } > "$work/index.md"
    for page in man/*.[0-9]; do
        name=$(basename "$page")
        mandoc -T html -O fragment "$page" > "$work/page.html"
        # As it is: pandoc would drop the places that links lead to.
        { echo '```{=html}'; echo '<div class="manual-text">'; cat "$work/page.html"; echo '</div>'; echo '```'; } \
            > "$work/text.md"
        render markdown "$work/text.md" "man/$name.html" "$name"
        about=$(awk '/^\.SH "?NAME/ { getline; sub(/^.*\\- */, ""); print; exit }' "$page")
        echo "| [$name]($name.md) | ${about//|/} |" >> "$work/index.md"
    done
    sed -i 's/\.md)/.html)/' "$work/index.md"
    render gfm "$work/index.md" man/index.html "The manual"
else
    echo "skipped: mandoc is not installed: the site has no manual"
    echo '# The manual' > "$work/index.md"
    render gfm "$work/index.md" man/index.html "The manual"
fi

# Each link leads to a page, and to a place in it.
find "$out" -name '*.html' | sort | while read -r page; do
    grep -oE '(href|src)="[^"]*"' "$page" | sed 's/^[a-z]*="//; s/"$//' | sort -u | while read -r link; do
        case $link in
            *://* | mailto:*) echo "$link" >> "$work/external"; continue ;;
            data:*) continue ;;
        esac
        target=${link%%#*}
        fragment=
        case $link in *'#'*) fragment=${link#*#} ;; esac
        file=$page
        [ -z "$target" ] || file=$(realpath -m "$(dirname "$page")/$target")
        if [ ! -f "$file" ]; then
            echo "${page#"$out"/}: $link: there is no such page"
        elif [ -n "$fragment" ] && ! grep -qF "id=\"$fragment\"" "$file"; then
            echo "${page#"$out"/}: $link: there is no such place"
        fi
    done
done > "$work/broken"
touch "$work/external"
sort -u "$work/external" > "$out/external-links.txt"
if [ -s "$work/broken" ]; then
    cat "$work/broken" >&2
    echo "site.sh: $(wc -l < "$work/broken") links are broken" >&2
    exit 1
fi
echo "$(find "$out" -name '*.html' | wc -l) pages in $out; $(wc -l < "$out/external-links.txt") links to other sites"
