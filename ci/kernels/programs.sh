#!/bin/sh
# programs.sh < MESSAGES: reads what `cargo test --no-run --message-format=json` prints, and prints one line for each
# program and interposer of this repository: its name, and its path. A test's name is FOLDER:TARGET, where FOLDER is its
# crate's, relative to `crates` (the unit tests are FOLDER:lib, or FOLDER:bin-NAME); of all else the name is "-".
set -eu
sed -n '/"reason":"compiler-artifact"/!d; /"package_id":"path+file/!d; p' | sed -n '
    s/.*"package_id":"path+file:\/\/\([^"#]*\)#[^"]*".*"target":{"kind":\["\([a-z-]*\)".*"name":"\([^"]*\)","src_path".*"test":\(true\|false\)}.*"filenames":\[\([^]]*\)\],"executable":\(null\|"[^"]*"\).*/\1 \2 \3 \4 \6 \5/p
' | while read -r package kind target is_test executable files; do
    folder=${package##*/}
    executable=$(echo "$executable" | tr -d '"')
    case $kind,$is_test,$executable in
        # It is for the compiler's processor.
        proc-macro,*,null) ;;
        *,*,null) echo "$files" | tr ',' '\n' | tr -d '"' | sed -n 's/.*\.so$/- &/p; s/.*liblatchwork_c[^/]*\.a$/- &/p' ;;
        test,*) echo "$folder:$target $executable" ;;
        bin,true,*) echo "$folder:bin-$target $executable" ;;
        *,true,*) echo "$folder:lib $executable" ;;
        *) echo "- $executable" ;;
    esac
done
