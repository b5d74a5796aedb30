"""Write the extension as a package that VS Code installs: `code --install-extension FILE`."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parent
TYPES = """\
<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="json" ContentType="application/json"/>
<Default Extension="js" ContentType="application/javascript"/>
<Default Extension="md" ContentType="text/markdown"/>
<Default Extension="vsixmanifest" ContentType="text/xml"/>
</Types>
"""
MANIFEST = """\
<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
<Metadata>
<Identity Language="en-US" Id="{name}" Version="{version}" Publisher="{publisher}"/>
<DisplayName>{displayName}</DisplayName>
<Description xml:space="preserve">{description}</Description>
<Properties><Property Id="Microsoft.VisualStudio.Code.Engine" Value="{engine}"/></Properties>
</Metadata>
<Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
<Dependencies/>
<Assets>
<Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json"
 Addressable="true"/>
</Assets>
</PackageManifest>
"""


def pack(target: Path) -> Path:
    """Write the package; `dist/extension.js` must have been built."""
    package = json.loads((FOLDER / "package.json").read_text())
    texts = {
        "[Content_Types].xml": TYPES,
        "extension.vsixmanifest": MANIFEST.format(engine=package["engines"]["vscode"], **package),
        "extension/package.json": json.dumps(package, indent=2),
        "extension/dist/extension.js": (FOLDER / "dist" / "extension.js").read_text(),
        "extension/readme.md": (FOLDER / "README.md").read_text(),
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return target


if __name__ == "__main__":
    print(pack(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER / "dist" / "tilelet.vsix"))
