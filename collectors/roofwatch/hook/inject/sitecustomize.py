# Read by every Python that the job starts, of any version: syntax that all of them know, so no annotations.
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202, ANN204
"""Arms the hook, then gives way to the ``sitecustomize`` that the job would have had."""

import sys


class _Torch(object):
    """First on ``sys.meta_path``: answers for ``torch`` only, as the other finders do, and attaches after it."""

    def __init__(self, attach):
        self.attach = attach
        self.looking = False

    def find_spec(self, name, path=None, target=None):
        """The spec of torch, whose loader attaches the hook once it has run. None for all other names."""
        if name != "torch" or self.looking:
            return None
        self.looking = True
        try:
            spec = self._ask_others(name, path, target)
        finally:
            self.looking = False
        loader = getattr(spec, "loader", None)
        if hasattr(loader, "exec_module"):
            try:
                loader.exec_module = self._then_attach(loader, loader.exec_module)
            except AttributeError:  # a loader that takes no attributes: no windows, but the job
                pass
        return spec

    def _ask_others(self, name, path, target):
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _then_attach(self, loader, execute):
        def exec_module(module):
            try:
                del loader.exec_module  # the loader is as it was
            except AttributeError:
                pass
            execute(module)  # what fails here is the job's
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self.attach()

        return exec_module


def _load(folder):
    """The hook under a private name, from where this file lies: the job's path stays the job's."""
    import importlib.util
    import os

    home = os.path.dirname(folder)
    spec = importlib.util.spec_from_file_location(
        "_roofwatch_hook", os.path.join(home, "__init__.py"), submodule_search_locations=[home]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["_roofwatch_hook"] = package
    spec.loader.exec_module(package)
    return package


def _arm(folder):
    def attach():
        try:
            _load(folder)._attach_by_run()
        except Exception:
            pass

    sys.meta_path.insert(0, _Torch(attach))


def _start():
    import os

    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.version_info >= (3, 8):
        try:
            _arm(folder)
        except Exception:
            pass
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != folder]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401 - the job's own
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


_start()
