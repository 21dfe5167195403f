"""Train a model from a config; any option of it can be overridden on the command line."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="a YAML file, configs/depth/nyu_vits_dpt.yaml say")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="optim.lr=3e-5, batch_size=8, ...")
    parser.add_argument(
        "--resume",
        nargs="?",
        const="auto",
        metavar="PATH",
        help="go on from the newest good checkpoint of `output`, or from the one named",
    )


def run(args: argparse.Namespace) -> int:
    from densevit import build
    from densevit.engine import distributed, resuming, seed

    plan = build.configure(args.config, args.overrides)
    with distributed.session(plan.run.device) as world:
        found = resuming.prepare(plan.run, args.resume, world)
        seed.seed_everything(plan.run.seed)
        trainer = build.build_trainer(plan, world)
        seed.reseed(plan.run.seed, world.rank)
        if found is not None:
            trainer.resume(*found)
        scores = trainer.fit(build.train_batches(plan, world), build.val_batches(plan, world))
        if world.is_main:
            best = trainer.checkpoints.best()
            print(f"done: {plan.run.output}" + (f", best {best.name}" if best else ""))
            print("  ".join(f"{name} {value:.4f}" for name, value in scores.items()))
    return 0
