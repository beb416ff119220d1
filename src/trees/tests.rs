//! A tree in a store: started, and refused after each kind of change.

use std::fs;

use super::*;

/// A store with the tree of one package, and the entry of a server that it starts.
struct Installed {
    folder: tempfile::TempDir,
    package: Package,
    stdio: Stdio,
}

fn installed() -> Installed {
    let folder = tempfile::tempdir().unwrap();
    let mut package = Package::new(PackageKind::Npm, "@ada/files", "1.2.3");
    package.digest = Some(format!("sha256:{}", "ab".repeat(32)));
    let place = Store::at(folder.path().to_owned()).place(&package).unwrap();
    let script = place.tree().join("node_modules/@ada/files/cli.js");
    fs::create_dir_all(script.parent().unwrap()).unwrap();
    fs::write(&script, "run()").unwrap();
    fs::write(place.tree().join("node_modules/other.js"), "other()").unwrap();
    let start = Start::Node { script: "node_modules/@ada/files/cli.js".to_owned() };
    write(&place, &Record::new(package.digest.clone().unwrap(), hashes(&place.tree()).unwrap(), start));
    let stdio = Stdio::new("npx").args(["-y", "@ada/files@1.2.3", "--all", "/srv"]);
    Installed { folder, stdio: Stdio { package: Some(package.clone()), ..stdio }, package }
}

fn write(place: &Place, record: &Record) {
    fs::write(place.record_file(), serde_json::to_string(record).unwrap()).unwrap();
}

impl Installed {
    fn place(&self) -> Place {
        Store::at(self.folder.path().to_owned()).place(&self.package).unwrap()
    }

    fn program(&self) -> Result<Stdio, Error> {
        of_store(&Store::at(self.folder.path().to_owned()), &self.stdio, &self.package)
    }
}

#[test]
fn a_server_starts_from_its_tree_with_its_own_arguments() {
    let installed = installed();
    let script = installed.place().tree().join("node_modules/@ada/files/cli.js").display().to_string();
    assert_eq!(installed.program(), Ok(Stdio::new("node").args([script.as_str(), "--all", "/srv"])));
}

#[test]
fn each_change_of_a_tree_is_seen() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 6] = [
        ("a byte", |tree| fs::write(tree.join("node_modules/other.js"), "Other()").unwrap()),
        ("a file more", |tree| fs::write(tree.join("more.js"), "").unwrap()),
        ("a file less", |tree| fs::remove_file(tree.join("node_modules/other.js")).unwrap()),
        ("another name", |tree| {
            fs::rename(tree.join("node_modules/other.js"), tree.join("node_modules/Other.js")).unwrap();
        }),
        ("compiled code", |tree| {
            fs::create_dir(tree.join("__pycache__")).unwrap();
            fs::write(tree.join("__pycache__/a.pyc"), "x").unwrap();
        }),
        ("an empty folder", |tree| fs::create_dir(tree.join("empty")).unwrap()),
    ];
    for (what, change) in changes {
        let installed = installed();
        change(&installed.place().tree());
        let error = installed.program().unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{what}: {error}");
        assert!(installed.place().sound().is_none(), "{what}");
    }
}

#[test]
fn files_of_one_machine_do_not_count_for_others() {
    let installed = installed();
    let before = hashes(&installed.place().tree()).unwrap();
    fs::create_dir_all(installed.place().tree().join("a-1.dist-info")).unwrap();
    let with = hashes(&installed.place().tree()).unwrap();
    for file in ["bin", "a-1.dist-info/RECORD", "a-1.dist-info/INSTALLER"] {
        fs::write(installed.place().tree().join(file), "here").unwrap();
    }
    let after = hashes(&installed.place().tree()).unwrap();
    assert!(before.tree != with.tree && with.tree == after.tree && with.whole != after.whole);
}

#[test]
fn what_is_not_installed_or_something_else_never_starts() {
    let other = |change: fn(&mut Installed)| {
        let mut installed = installed();
        change(&mut installed);
        installed.program().unwrap_err().to_string()
    };
    insta::assert_snapshot!(other(|installed| fs::remove_dir_all(installed.place().folder).unwrap()), @"the locked tree of @ada/files@1.2.3 is not installed here");
    insta::assert_snapshot!(other(|installed| installed.stdio.args[1] = "@ada/files@1.2.4".to_owned()), @"its command does not start @ada/files@1.2.3, the package that `package` names");
    insta::assert_snapshot!(other(|installed| {
        let place = installed.place();
        let start = Start::Node { script: "../../elsewhere.js".to_owned() };
        let digest = installed.package.digest.clone().unwrap();
        write(&place, &Record::new(digest, hashes(&place.tree()).unwrap(), start));
    }), @"the installed tree of @ada/files@1.2.3 differs from its lock: the file that starts it is outside the tree");
    insta::assert_snapshot!(other(|installed| {
        let place = installed.place();
        let start = Start::Node { script: "other.js".to_owned() };
        write(&place, &Record::new("sha256:00".to_owned(), hashes(&place.tree()).unwrap(), start));
    }), @"the installed tree of @ada/files@1.2.3 differs from its lock: it was made from another lock");
    insta::assert_snapshot!(other(|installed| fs::write(installed.place().record_file(), "{").unwrap()), @"the installed tree of @ada/files@1.2.3 cannot be read: EOF while parsing an object at line 1 column 1");
}

#[test]
fn a_folder_has_a_plain_name() {
    let mut package = Package::new(PackageKind::Pypi, "../../../etc", "1/../..");
    assert_eq!(folder_name(&package), None);
    package.digest = Some(format!("sha256:{}", "0".repeat(64)));
    assert_eq!(folder_name(&package).as_deref(), Some("-..-..-etc-1-..-..-0000000000000000"));
}

/// The arguments of Python: the tree, the function, and the program's own arguments.
#[test]
fn a_python_server_starts_without_the_packages_of_the_system() {
    let mut installed = installed();
    installed.package = Package { kind: PackageKind::Pypi, name: "notes".to_owned(), ..installed.package };
    installed.stdio.args = ["notes==1.2.3", "--all"].map(str::to_owned).to_vec();
    let place = installed.place();
    fs::create_dir_all(place.tree()).unwrap();
    let start = Start::Python {
        interpreter: "/usr/bin/python3".to_owned(),
        module: "notes.cli".to_owned(),
        function: "main".to_owned(),
        name: "notes".to_owned(),
    };
    write(&place, &Record::new(installed.package.digest.clone().unwrap(), hashes(&place.tree()).unwrap(), start));
    let ready = installed.program().unwrap();
    let tree = place.tree().display().to_string();
    assert_eq!(ready.command, "/usr/bin/python3");
    assert_eq!(ready.args, ["-S", "-B", "-c", PYTHON, &tree, "notes.cli", "main", "notes", "--all"]);
    assert_eq!(ready.env[0], ("PYTHONPATH".to_owned(), Secret::new(tree)));
}

#[test]
fn the_help_names_what_the_tree_was_made_of() {
    let help = |kind| {
        let package = Package { kind, ..installed().package };
        Error::Missing(package.spec()).help(&Stdio { package: Some(package), ..installed().stdio })
    };
    assert_eq!(help(PackageKind::Npm), "mcp-host install --locked installs it from its lock");
    assert_eq!(help(PackageKind::Mcpb), "mcp-host install FILE.mcpb installs it from its bundle");
}
